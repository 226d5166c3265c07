use proptest::prelude::*;

use super::*;

fn hidden(text: &str, secret: &str) -> String {
    Secret::new(secret).hidden(text)
}

#[test]
fn it_is_hidden_in_every_usual_spelling() {
    let secret = "it's \"ü\\\\%\n7";
    for told in [
        secret.to_owned(),
        secret.escape_default().to_string(),
        secret.escape_debug().to_string(),
        secret.as_bytes().escape_ascii().to_string(),
        r#"it's \"\xc3\xbc\\\\%\n7"#.to_owned(),
        r#"it's \"\u00FC\\\\%\n7"#.to_owned(),
        r"it's%20%22%C3%BC%5c%5c%25%0A7".to_owned(),
        r"it's%2520%2522%25C3%25BC%255c%255c%2525%250A7".to_owned(),
        secret.replace('\n', " "),
        secret.to_uppercase().replace('Ü', "ü"),
    ] {
        let text = format!("ERR `{told}`, {told}");
        assert_eq!(hidden(&text, secret), "ERR `***`, ***", "{text}");
    }
}

#[test]
fn a_piece_is_hidden_and_what_is_broken_up() {
    for (told, clean) in [
        ("ERR unknown command 'hunte", "ERR unknown command '***"),
        ("ter2pass' is not known", "***' is not known"),
        ("hun\r\nter\r\n2pa\r\nss", "***"),
        ("say h-u-n-t-e-r", "say ***"),
        ("the HUNTer2 hunt", "the *** ***"),
        ("a hun, a ter", "a hun, a ter"),
    ] {
        assert_eq!(hidden(told, "hunter2pass"), clean);
    }
    // Half of a short one.
    assert_eq!(hidden("sesa esam sam", "sesame"), "*** *** ***");
    assert_eq!(hidden("ERR tes pass", "test"), "ERR *** pass");
}

#[test]
fn what_stands_beside_it_does_not_show_it() {
    for (secret, told, clean) in [
        // An escape that seems to begin earlier than it does.
        (
            r"a!!!A!0!漢!漢0a!!\0",
            r"\\u{21}\u{21}\u{5C}\u{30}",
            r"\***",
        ),
        ("0üü0 aaaAA:aA;", r"\%253a%2561%2541%253b", r"\***"),
        (r"xü\\ax", r"\\u{fc}\\\\a", r"\***"),
        ("xaü!x", r"\a\u{fc}!", r"\***"),
        ("x4aü!", r"%4a\u{fc}!", "%***"),
        // A percent sign that is a letter of the secret.
        ("xü!%", r"\u{fc}!%41", "***41"),
        ("xü%41", r"'\u{fc}%41'", "'***'"),
        // A backslash that is one.
        (r"x \na", r"%20\na", "***"),
        // A short one, only where it stands alone.
        ("aü", r"\a\u{fc}, \a\u{fc}b", r"\***, \a\u{fc}b"),
    ] {
        assert_eq!(hidden(told, secret), clean, "{told}");
    }
}

#[test]
fn a_very_short_one_is_hidden_where_it_stands_alone() {
    assert_eq!(hidden("an 'an' AN,and", "an"), "*** '***' ***,and");
    assert_eq!(hidden("nothing to hide", ""), "nothing to hide");
    assert_eq!(hidden(r"a \\ b", r"\"), "a *** b");
}

#[test]
fn the_code_of_an_error_stays() {
    let clean = |error| Secret::new("readonly error").hidden_in_error(error);
    assert_eq!(clean("READONLY it is readonly"), "READONLY it is ***");
    assert_eq!(clean("ERR\r\n"), "ERR\r\n");
    assert_eq!(clean("Error: readonly"), "***: ***");
    assert_eq!(code(" ERR x"), "");
    assert_eq!(code("ERRor"), "");
}

#[test]
fn what_is_never_told_is_not_looked_through() {
    let text = format!("{}x", "sesame".repeat(1 << 18));
    assert_eq!(hidden(&text, "sesame"), "***");
    let long: String = (0..1 << 18).map(|n| format!("{n:x}")).collect();
    let start = crate::base::clock::cpu_time();
    assert_eq!(hidden(&"x".repeat(1 << 22), &long), "x".repeat(ENOUGH));
    let took = crate::base::clock::cpu_time() - start;
    // Only a search through all of it takes this long.
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

/// The ways a letter is written: as it is, in capitals, escaped once or twice, with something
/// behind it.
fn spelled(c: char, way: usize) -> String {
    let mut bytes = [0; 4];
    let bytes = c.encode_utf8(&mut bytes).as_bytes();
    let each = |way: fn(&u8) -> String| bytes.iter().map(way).collect::<String>();
    match way {
        0 => c.to_string(),
        1 => c.to_ascii_uppercase().to_string(),
        2 => c.escape_default().to_string(),
        3 => format!("\\u{{{:X}}}", u32::from(c)),
        4 => each(|byte| format!("\\x{byte:02x}")),
        5 => each(|byte| format!("%{byte:02X}")),
        6 => each(|byte| format!("%25{byte:02x}")),
        7 => each(|byte| format!("\\\\x{byte:02X}")),
        8 => format!("{c}\n"),
        _ => format!("{c}', '"),
    }
}

/// Any letters, or mostly those that escapes are made of.
fn written(length: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = String> {
    let any = prop::char::ranges(vec![' '..='~', 'ü'..='ü', '漢'..='漢'].into());
    let escapes = prop::sample::select("\\\\\\%%%ux{}01256acdf!ü漢".chars().collect::<Vec<_>>());
    let letters = prop_oneof![any, escapes];
    prop::collection::vec(letters, length).prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn no_piece_survives(
        secret in written(4..=24),
        (from, to) in (0..=24usize, 0..=24usize),
        (before, behind) in (written(0..=9), written(0..=9)),
        way in 0..8usize,
    ) {
        let letters: Vec<char> = secret.chars().collect();
        let (from, to) = (from.min(letters.len()), to.min(letters.len()));
        let told = &letters[from.min(to)..from.max(to)];
        let told_as = |letters: &[char]| letters.iter().map(|c| spelled(*c, way)).collect::<String>();
        let text = before + &told_as(told) + &behind;
        let clean = hidden(&text, &secret);
        for piece in told.windows(PIECE).map(told_as) {
            // The stars are not of the text, but may be of the secret.
            let told = clean.split("***").any(|told| told.contains(&piece));
            prop_assert!(!told, "{text:?} became {clean:?}");
        }
    }

    #[test]
    fn nor_one_that_is_broken_up(secret in "[a-z0-9]{7,24}", way in 8..10usize) {
        let text: String = secret.chars().map(|c| spelled(c, way)).collect();
        prop_assert_eq!(hidden(&text, &secret).matches(char::is_alphanumeric).count(), 0);
    }

    #[test]
    fn what_has_nothing_of_it_stays(text in "[a-m \\\\%]{0,99}") {
        prop_assert_eq!(hidden(&text, "QRSTUVWXYZ"), text);
    }
}
