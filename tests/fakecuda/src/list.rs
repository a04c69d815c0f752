//! What programs hold handles of.

/// Things of a kind, by handles that are unlike those of other kinds.
pub struct List<T>(Vec<T>);

pub trait Listed {
    const KIND: u64;
}

/// Handles are as far apart as addresses are.
const APART: u64 = 64;

impl<T: Listed> List<T> {
    pub const fn new() -> List<T> {
        List(Vec::new())
    }

    pub fn add(&mut self, thing: T) -> u64 {
        self.0.push(thing);
        self.handle(self.0.len() - 1)
    }

    fn handle(&self, index: usize) -> u64 {
        (T::KIND << 32) + (index as u64 + 1) * APART
    }

    pub fn handles(&self) -> Vec<u64> {
        (0..self.0.len()).map(|i| self.handle(i)).collect()
    }

    fn index(handle: u64) -> Option<usize> {
        let at = handle.checked_sub(T::KIND << 32)?;
        (at % APART == 0).then(|| (at / APART).checked_sub(1))?.map(|i| i as usize)
    }

    pub fn get(&self, handle: u64) -> Option<&T> {
        self.0.get(Self::index(handle)?)
    }

    pub fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        self.0.get_mut(Self::index(handle)?)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

/// Of handles that the driver itself keeps.
impl<T: Listed> std::ops::Index<u64> for List<T> {
    type Output = T;

    fn index(&self, handle: u64) -> &T {
        self.get(handle).expect("a handle of the driver's own")
    }
}

impl<T: Listed> std::ops::IndexMut<u64> for List<T> {
    fn index_mut(&mut self, handle: u64) -> &mut T {
        self.get_mut(handle).expect("a handle of the driver's own")
    }
}
