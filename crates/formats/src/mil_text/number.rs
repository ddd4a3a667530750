//! Numbers as C prints them: `%a` where they stand alone, `%.17g` within lists.

use std::fmt::Write;

/// A number as text says it: an integer, a decimal or a hexadecimal float, `inf` or `nan`.
pub fn float(text: &str) -> Option<f64> {
    let (sign, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match magnitude {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ => match magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X")) {
            Some(hex) => hexadecimal(hex)?,
            None if magnitude.starts_with(|c: char| c.is_ascii_digit()) => {
                magnitude.parse().ok()?
            }
            None => return None,
        },
    };
    Some(sign * value)
}

/// What follows the `0x`. Digits beyond the sixteenth are dropped, which no f64 notices but in
/// rounding.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut shift) = (0u64, exponent.clamp(-5000, 5000));
    for (i, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(c.to_digit(16)?);
        let after_point = i >= whole.len();
        match mantissa >> 60 {
            0 => {
                mantissa = mantissa << 4 | digit;
                shift -= if after_point { 4 } else { 0 };
            }
            _ => shift += if after_point { 0 } else { 4 },
        }
    }
    Some(scale(mantissa as f64, shift))
}

/// `x` times two to the `exponent`, in steps that are exact.
fn scale(mut x: f64, mut exponent: i32) -> f64 {
    while exponent > 0 && x.is_finite() && x != 0.0 {
        let step = exponent.min(1000);
        x *= 2f64.powi(step);
        exponent -= step;
    }
    while exponent < 0 && x != 0.0 {
        let step = exponent.max(-1000);
        x *= 2f64.powi(step);
        exponent -= step;
    }
    x
}

/// As `%a` prints it: `0x1.8p-3`.
pub fn hex(x: f64, out: &mut String) {
    if x.is_nan() {
        return out.push_str("nan");
    }
    if x.is_sign_negative() {
        out.push('-');
    }
    if x.is_infinite() {
        return out.push_str("inf");
    }
    let bits = x.to_bits();
    let (exponent, mantissa) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let (whole, exponent) = match (exponent, mantissa) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        (e, _) => (1, e - 1023),
    };
    // Writing into a string cannot fail.
    let _ = write!(out, "0x{whole}");
    if mantissa != 0 {
        let digits = format!("{mantissa:013x}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
    let _ = write!(out, "p{exponent:+}");
}

/// As `%.17g` prints it: `0.0256067`, `6.3110803182750176e-06`.
pub fn decimal(x: f64, out: &mut String) {
    const DIGITS: i32 = 17;
    if !x.is_finite() {
        return hex(x, out);
    }
    let scientific = format!("{x:.*e}", DIGITS as usize - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    let _ = match exponent {
        -4..DIGITS => {
            out.push_str(&trim(&format!("{x:.*}", (DIGITS - 1 - exponent) as usize)));
            Ok(())
        }
        e => {
            let sign = if e < 0 { '-' } else { '+' };
            write!(out, "{}e{sign}{:02}", trim(digits), e.unsigned_abs())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_c_prints_them_and_read_back() {
        for (x, a, g) in [
            (0.0, "0x0p+0", "0"),
            (-0.0, "-0x0p+0", "-0"),
            (0.1875, "0x1.8p-3", "0.1875"),
            (-1.0, "-0x1p+0", "-1"),
            (0.0256067, "0x1.a38a48c3be305p-6", "0.0256067"),
            (6.311080318275018e-6, "0x1.a78788c66c12bp-18", "6.3110803182750176e-06"),
            (1e300, "0x1.7e43c8800759cp+996", "1.0000000000000001e+300"),
            (5e-324, "0x0.0000000000001p-1022", "4.9406564584124654e-324"),
            (f64::INFINITY, "inf", "inf"),
        ] {
            let (mut hexed, mut decimals) = Default::default();
            hex(x, &mut hexed);
            decimal(x, &mut decimals);
            assert_eq!((hexed.as_str(), decimals.as_str()), (a, g));
            assert_eq!(float(&hexed).map(f64::to_bits), Some(x.to_bits()));
            assert_eq!(float(&decimals).map(f64::to_bits), Some(x.to_bits()));
        }
        assert!(float("nan").is_some_and(f64::is_nan));
        for wrong in ["", "-", "0x", "0xg", "1.2.3", "0x1p", "e5", "--1", "infinite"] {
            assert_eq!(float(wrong), None, "{wrong:?}");
        }
        assert_eq!(float("0x1p+999999"), Some(f64::INFINITY));
        assert_eq!(float("0x0.8"), Some(0.5));
    }
}
