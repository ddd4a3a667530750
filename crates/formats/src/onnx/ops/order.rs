//! The largest, and boxes chosen by score.

use russet_ir::ops::*;

use super::super::cx::{Cx, Import, Outs, saturated};
use super::super::elem::Elem;
use super::super::importer::Out;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "TopK" => topk,
        _ => return None,
    })
}

fn topk(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int_attr("axis", -1))? as i32;
    let k = match cx.version < 10 {
        true => cx.int_attr("k", 1),
        false => cx.int(1, "K")?,
    };
    let made = cx.push_all(Topk {
        x,
        k: saturated(k),
        axis,
        ascending: !cx.flag("largest", true),
        sort: true,
        return_indices: true,
        output_indices_dtype: None,
    })?;
    Ok(vec![Out::Value(made[0], cx.elem(0)), Out::Value(made[1], Elem::I64)])
}
