//! Words of a text.

/// A piece of the text with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    /// Of a string, without the quotes, still with its escapes.
    pub text: &'a str,
    /// Byte offset of its first character.
    pub at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Name,
    Number,
    String,
    /// One character, or `->`.
    Mark,
    End,
}

/// What is wrong, and where in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub at: usize,
    pub why: String,
}

pub type Parsed<T> = Result<T, Wrong>;

/// The token that begins at or after `at`, and where the next one may begin.
pub fn next(text: &str, at: usize) -> Parsed<(Token<'_>, usize)> {
    let bytes = text.as_bytes();
    let mut start = at;
    while bytes.get(start).is_some_and(u8::is_ascii_whitespace) {
        start += 1;
    }
    let token = |kind, from: usize, to: usize, end| {
        Ok((Token { kind, text: &text[from..to], at: start }, end))
    };
    let Some(&first) = bytes.get(start) else { return token(Kind::End, start, start, start) };
    let run = |from: usize, wanted: &dyn Fn(u8) -> bool| {
        let rest = &bytes[from..];
        from + rest.iter().position(|&b| !wanted(b)).unwrap_or(rest.len())
    };
    match first {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
            let end = run(start, &|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@' | b'.'));
            token(Kind::Name, start, end, end)
        }
        b'-' if bytes.get(start + 1) == Some(&b'>') => {
            token(Kind::Mark, start, start + 2, start + 2)
        }
        b'0'..=b'9' | b'-' | b'+' => {
            let end = number_end(bytes, start);
            token(Kind::Number, start, end, end)
        }
        b'"' => {
            let mut end = start + 1;
            loop {
                match bytes.get(end) {
                    Some(b'"') => return token(Kind::String, start + 1, end, end + 1),
                    Some(b'\\') => end += 2,
                    Some(_) => end += 1,
                    None => {
                        let why = "the string that begins here has no end".to_owned();
                        return Err(Wrong { at: start, why });
                    }
                }
            }
        }
        _ => {
            let end = start + text[start..].chars().next().map_or(1, char::len_utf8);
            token(Kind::Mark, start, end, end)
        }
    }
}

/// Digits, letters (`0x1p`, `inf`), a point, and a sign at the beginning or after an exponent.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let is_hex = bytes[start..].iter().take(3).any(|&b| matches!(b, b'x' | b'X'));
    let mut end = start + 1;
    while let Some(&b) = bytes.get(end) {
        let exponent = match is_hex {
            true => matches!(bytes[end - 1], b'p' | b'P'),
            false => matches!(bytes[end - 1], b'e' | b'E'),
        };
        let goes_on =
            b.is_ascii_alphanumeric() || b == b'.' || exponent && matches!(b, b'+' | b'-');
        if !goes_on {
            break;
        }
        end += 1;
    }
    end
}

/// A string without its escapes; `Err` is the offset of a bad one.
pub fn unescape(text: &str) -> Result<String, usize> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(i) = rest.find('\\') {
        out.push_str(&rest[..i]);
        let mut escaped = rest[i + 1..].chars();
        out.push(match escaped.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('0') => '\0',
            Some(c @ ('"' | '\\' | '\'')) => c,
            _ => return Err(text.len() - rest.len() + i),
        });
        rest = escaped.as_str();
    }
    out.push_str(rest);
    Ok(out)
}

/// Counted from one; columns in characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    (line, column)
}
