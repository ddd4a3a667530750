//! Imports, one small function for each op, grouped by kind. Semantics are those of the ONNX
//! operator specification, for every version of the op set from 7 on.
//!
//! To add one: write the function, name it in its file's `find`.

mod attention;
mod control;
mod conv;
mod elementwise;
mod index;
mod logic;
mod loss;
mod microsoft;
mod movement;
mod norm;
mod order;
mod pool;
mod products;
mod quantized;
mod random;
mod reduce;
mod resize;
mod rnn;
mod shapes;
mod signal;

use super::cx::Import;

/// The import of an op of a domain; `None` when there is none.
pub fn find(domain: &str, op: &str) -> Option<Import> {
    let standard: &[fn(&str) -> Option<Import>] = &[
        elementwise::find,
        logic::find,
        products::find,
        movement::find,
        index::find,
        shapes::find,
        reduce::find,
        order::find,
        norm::find,
        conv::find,
        pool::find,
        resize::find,
        rnn::find,
        control::find,
        quantized::find,
        attention::find,
        random::find,
        signal::find,
        loss::find,
    ];
    match domain {
        "" => standard.iter().find_map(|find| find(op)),
        "com.microsoft" => microsoft::find(op),
        _ => None,
    }
}
