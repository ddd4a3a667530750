//! Names of ONNX as names of MIL.

/// `name` with every character MIL's names do not have as `_`, and one before a digit.
pub fn word(name: &str) -> String {
    let part = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let word: String = name.chars().map(part).collect();
    match word.chars().next() {
        Some(c) if c.is_ascii_digit() => format!("_{word}"),
        Some(_) => word,
        None => "v".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_become_words() {
        for (name, word) in
            [("/a/b.c", "_a_b_c"), ("1", "_1"), ("", "v"), ("é:0", "__0"), ("ok", "ok")]
        {
            assert_eq!(super::word(name), word);
        }
    }
}
