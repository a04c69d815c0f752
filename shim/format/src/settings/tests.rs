use super::lines::NO_TABLE;
use super::*;
use proptest::prelude::*;

fn written(value: Value) -> String {
    let mut out = Vec::new();
    value.write(|c| out.push(c));
    String::from_utf8_lossy(&out).into_owned()
}

/// `name=value` of what is set, and `line: text: fix` of what is not.
fn read(text: &str) -> Vec<String> {
    items(text.as_bytes())
        .map(|item| match item {
            Item::Set { line, key, value } => format!("{line} {}={}", key.name(), written(value)),
            Item::Wrong { line, text, fix } => format!("{line}! {}: {fix}", String::from_utf8_lossy(text)),
        })
        .collect()
}

#[test]
fn values_become_what_a_variable_holds() {
    let text = "\u{feff}# settings\r\n  mode = \"full\"  # every call\r\nbig=65_536\npython_alloc = true\n\nphase_on = ['^a\\d # \"', \"b\\t\\u00e9\\\\\"]\n\
                exclude = [ # programs\n  'git', 'make', # both\n ]\n\"interval\" = '1.5s'\nsample = 1.5\nartifacts = []\nmax = '2GiB'";
    assert_eq!(
        read(text),
        [
            "2 mode=full",
            "3 big=65536",
            "4 python_alloc=1",
            "6 phase_on=^a\\d # \",b\té\\",
            "7 exclude=git,make",
            "10 interval=1.5s",
            "11 sample=1.5",
            "12 artifacts=",
            "13 max=2GiB"
        ]
    );
    let parts = |text: &str| {
        let Some(Item::Set { value, .. }) = items(text.as_bytes()).next() else { panic!("{text}") };
        value.parts().map(written).collect::<Vec<_>>()
    };
    assert_eq!(parts("phase_on = [\n'a,b', # one\n\"c\",\n]"), ["a,b", "c"]);
    assert_eq!(parts("phase_on = 'a,b'"), ["a,b"]);
}

#[test]
fn a_line_that_is_none_is_said_with_how_to_mend_it_and_the_next_one_counts() {
    for (line, fix) in [
        ("mode = full", "put the text between quotes"),
        ("mode = \"full", "end the text with the quote that it began with"),
        ("mode", "write `key = value`"),
        ("= 3", "write `key = value`"),
        ("mode =", "give a value after the ="),
        ("mode = \"full\" fast", "let nothing but a # comment follow the value"),
        ("phase_on = [\"\\d\"]", "write \\\\ for a backslash, or put the text between single quotes"),
        ("phase_on = ['a' 'b']", "put a comma between the values, and ] after the last"),
        ("phase_on = ['a',,'b']", "put a value between two commas"),
        ("phase_on = ['a', b]", "put the text between quotes"),
        ("phase_on = [['a']]", "give a string, a number, true, false or a list of them"),
        ("big = {a = 1}", "give a string, a number, true, false or a list of them"),
        ("big = 0x10", "put the text between quotes"),
        ("mode = '''full'''", "write the text in one line, between single quotes"),
        ("mood = 1", NO_SUCH),
        ("a.mode = 'full'", NO_SUCH),
    ] {
        let text = format!("\n{line}\nstacks = 'off'\n");
        assert_eq!(read(&text), [format!("2! {line}: {fix}"), "3 stacks=off".to_owned()], "{line}");
    }
    let fix = "end the list with ]";
    assert_eq!(read("phase_on = ['a',\n 'b'\nmode = 'full'\n")[1..], ["3 mode=full"]);
    assert_eq!(
        read("phase_on = ['a',\n 'b',\nmode = 'full'\n"),
        [format!("1! phase_on = ['a',: {fix}"), "3 mode=full".to_owned()],
        "a list without an end takes nothing along"
    );
    assert_eq!(read("mode = 'full'\nphase_on = ['a'"), ["1 mode=full".to_owned(), format!("2! phase_on = ['a': {fix}")]);
    assert_eq!(
        read("mood = ['',\n # x\n '']\nbig = 1\nbig = [1,\n\n 2]\nmax = 3"),
        [
            format!("1! mood = ['',: {NO_SUCH}"),
            "4 big=1".to_owned(),
            "5! big = [1,: set it once: what stands first counts".to_owned(),
            "8 max=3".to_owned()
        ],
        "a value of several lines that counts for nothing is left whole"
    );
    assert_eq!(read("big = 1\nbig = 2"), ["1 big=1", "2! big = 2: set it once: what stands first counts"]);
    assert_eq!(read("big = 1\n[memshim]\nmode = 'off'\n"), ["1 big=1".to_owned(), format!("2! [memshim]: {NO_TABLE}")]);
}

#[test]
fn every_key_has_its_variable_and_is_named_where_another_is_not_known() {
    for key in Key::ALL {
        assert_eq!(key.variable(), format!("MEMSHIM_{}", key.name().to_uppercase()));
        assert_eq!((Key::of(key.name().as_bytes()), Key::of_variable(key.variable().as_bytes())), (Some(*key), Some(*key)));
        assert!(NO_SUCH.split([' ', ',']).any(|word| word == key.name()), "{}", key.name());
    }
}

/// Lines that are TOML, and some that are not.
fn line() -> impl Strategy<Value = String> {
    let key = prop_oneof![Just("mode"), Just("big"), Just("phase_on"), Just("mood"), Just("[mode"), Just("max")];
    let text = prop_oneof!["'[a-z#,\\\\\\[\\] ]{0,6}'", "\"([a-z#,\\] ]|\\\\[tn\"\\\\x]|\\\\u00e9){0,4}\"", "'a", "\"b"];
    let one = prop_oneof![text, "-?[0-9_]{1,4}(\\.[0-9]{1,2})?", Just("true".to_owned()), Just("full".to_owned())].boxed();
    let list = proptest::collection::vec(one.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(",\n # x\n ")));
    (key, prop_oneof![one, list], prop_oneof![Just(""), Just(" # c"), Just(" x")]).prop_map(|(k, v, end)| format!("{k} = {v}{end}"))
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(text in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(b"[]'\"=\n#,\\m".to_vec())], 0..80)) {
        let lines = 1 + text.iter().filter(|c| **c == b'\n').count();
        let mut count = 0;
        for item in items(&text) {
            count += 1;
            if let Item::Set { value, .. } = item { written(value); }
        }
        prop_assert!(count <= lines);
    }

    /// What a whole TOML file sets is what is read here, where all of it is of the part that is.
    #[test]
    fn it_says_what_toml_says(lines in proptest::collection::vec(line(), 0..3)) {
        // Of a key that it does not know it cannot say that it is there twice.
        prop_assume!(lines.iter().filter(|line| line.starts_with("mood")).count() < 2);
        let text = lines.join("\n");
        let ours: Vec<Item> = items(text.as_bytes()).collect();
        let is_wrong = |i: &Item| matches!(i, Item::Wrong { fix, .. } if *fix != NO_SUCH);
        match toml::from_str::<toml::Table>(&text) {
            Err(_) => prop_assert!(ours.iter().any(is_wrong), "{text}"),
            Ok(table) => {
                prop_assert!(!ours.iter().any(is_wrong), "{text}\n{ours:?}");
                let set: Vec<(&str, Vec<String>)> = ours.iter().filter_map(|i| match i {
                    Item::Set { key, value, .. } => Some((key.name(), value.parts().map(written).collect())),
                    Item::Wrong { .. } => None,
                }).collect();
                let one = |v: &toml::Value| match v {
                    toml::Value::String(s) => s.clone(),
                    toml::Value::Boolean(b) => (*b as u8).to_string(),
                    toml::Value::Integer(n) => n.to_string(),
                    toml::Value::Float(n) => n.to_string(),
                    other => format!("{other:?}"),
                };
                for (key, values) in &set {
                    let theirs: Vec<String> = match &table[*key] {
                        toml::Value::Array(all) => all.iter().map(one).collect(),
                        value => vec![one(value)],
                    };
                    prop_assert_eq!(theirs.len(), values.len(), "{}", text);
                    for (theirs, ours) in theirs.iter().zip(values) {
                        let same = theirs == ours || theirs.parse::<f64>().ok().zip(ours.parse().ok()).is_some_and(|(a, b)| a == b);
                        prop_assert!(same, "{text}: {theirs} {ours}");
                    }
                }
                prop_assert_eq!(set.len(), table.keys().filter(|k| Key::of(k.as_bytes()).is_some()).count());
            }
        }
    }
}
