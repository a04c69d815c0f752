//! Figures that may not be known at all.

use std::ops::{Deref, DerefMut};

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Figures of one kind; where they are not known, every number among them is `null` in their JSON.
#[derive(Clone, Debug, Default)]
pub struct Known<T> {
    of: T,
    unknown: bool,
}

impl<T> Known<T> {
    /// Known or not.
    pub fn new(of: T, known: bool) -> Self {
        Known { of, unknown: !known }
    }

    /// The figures, where they are known.
    pub fn get(&self) -> Option<&T> {
        (!self.unknown).then_some(&self.of)
    }
}

impl<T> From<T> for Known<T> {
    fn from(of: T) -> Self {
        Known::new(of, true)
    }
}

impl<T> Deref for Known<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.of
    }
}

impl<T> DerefMut for Known<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.of
    }
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if !self.unknown {
            return self.of.serialize(s);
        }
        let mut value = serde_json::to_value(&self.of).map_err(serde::ser::Error::custom)?;
        without_numbers(&mut value);
        value.serialize(s)
    }
}

fn without_numbers(value: &mut Value) {
    match value {
        Value::Number(_) => *value = Value::Null,
        Value::Array(all) => all.iter_mut().for_each(without_numbers),
        Value::Object(all) => all.values_mut().for_each(without_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::report::Maps;

    #[test]
    fn what_is_not_known_is_null_at_any_depth() {
        let json = |known: bool| serde_json::to_value(Known::new(Maps::default(), known)).unwrap();
        assert_eq!((&json(true)["anon"]["peak_bytes"], &json(true)["peak_bytes"]), (&0.into(), &0.into()));
        assert_eq!((&json(false)["anon"]["peak_bytes"], &json(false)["peak_bytes"]), (&Value::Null, &Value::Null));
        assert!(json(false)["calls"].is_array() && Known::new(1, false).get().is_none());
    }
}
