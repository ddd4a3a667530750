//! Choices and loops: decided or unrolled where that is possible, blocks of MIL where not.

use russet_ir::ops::*;
use russet_ir::{DType, Type, Value};

use super::super::cx::{Cx, Import, Outs, resolve};
use super::super::elem::Elem;
use super::super::importer::{Out, Val, Why};
use super::movement::reversed;
use super::shapes::int64;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "If" => if_,
        "Loop" => loop_,
        "Scan" => scan,
        _ => return None,
    })
}

/// Turns up to which a loop is written out.
const TURNS_MAX: i64 = 4096;

fn if_(cx: &mut Cx<'_, '_>) -> Outs {
    let (yes, no) = (cx.graph_attr("then_branch")?, cx.graph_attr("else_branch")?);
    if let Some(lit) = cx.lit(0) {
        let chosen = if lit.as_f64().first() == Some(&0.0) { no } else { yes };
        let made = cx.subgraph(chosen, &[])?;
        return Ok(made.into_iter().map(Out::Same).collect());
    }
    let pred = cx.x(0)?;
    let rank = cx.rank(pred);
    let pred = cx.squeeze(pred, &(0..rank).collect::<Vec<_>>())?;
    let mut blocks = Vec::new();
    let mut elems = Vec::new();
    let mut types: Vec<Vec<Type>> = Vec::new();
    for graph in [yes, no] {
        let (block, (made, kinds)) = cx.in_block(|cx, block| {
            let made = cx.subgraph(graph, &[])?;
            let kinds: Vec<Elem> = made.iter().map(|&v| cx.im.elem(v)).collect();
            let own = made.into_iter().map(|v| own(cx, v)).collect::<Result<Vec<_>, _>>()?;
            cx.im.graph.set_block_outputs(block, own.clone());
            Ok((own, kinds))
        })?;
        types.push(made.iter().map(|&v| cx.im.graph.ty(v).clone()).collect());
        blocks.push(block);
        elems = kinds;
    }
    if let Some((a, b)) = types[0].iter().zip(&types[1]).find(|(a, b)| !a.agrees(b)) {
        return Err(Why(format!("its branches return {a} and {b}, which MIL takes for one type")));
    }
    let made = cx.push_blocks(Cond { pred }, blocks)?;
    Ok(made.into_iter().zip(elems).map(|(v, e)| Out::Value(v, e)).collect())
}

/// The value as one of the current block.
fn own(cx: &mut Cx<'_, '_>, v: Val) -> Result<Value, Why> {
    let before = cx.im.graph.n_values();
    let value = cx.im.value(v)?;
    let here = cx.im.block;
    let mine = cx.im.graph.block(here).nodes.iter().rev();
    let made = mine.take(64).any(|&id| cx.im.graph.node(id).outputs.contains(&value));
    match made && value.index() < before {
        true => Ok(value),
        false => cx.push(Identity { x: value }),
    }
}

fn loop_(cx: &mut Cx<'_, '_>) -> Outs {
    let body = cx.graph_attr("body")?;
    let limit = cx.lit(0).and_then(|l| l.as_ints().and_then(|i| i.first().copied()));
    let goes_on = |cx: &Cx<'_, '_>, v: Option<Val>| match v {
        None => Some(true),
        Some(v) => cx.im.lit(v).map(|l| l.as_f64().first() != Some(&0.0)),
    };
    let mut carried = (2..cx.n_inputs()).map(|i| cx.val(i)).collect::<Result<Vec<_>, _>>()?;
    let n_carried = carried.len();
    if body.output.len() < 1 + n_carried || body.input.len() != 2 + n_carried {
        return Err(Why::from("its body has not the operands of a loop"));
    }
    let n_scans = body.output.len() - 1 - n_carried;
    let first = goes_on(cx, cx.opt_val(1));
    let (Some(limit), Some(mut on)) = (limit.filter(|&n| n <= TURNS_MAX), first) else {
        return while_(cx, n_scans);
    };
    let mut scans: Vec<Vec<Value>> = vec![Vec::new(); n_scans];
    let mut kinds = vec![Elem::F32; n_scans];
    for turn in 0..limit.max(0) {
        if !on {
            break;
        }
        let turn = cx.im.constant("turn", Elem::I64, int64(vec![], &[turn])?);
        let yes = russet_ir::Tensor::bool(true);
        let yes = cx.im.constant("goes_on", Elem::Bool, yes);
        let mut given = vec![turn, yes];
        given.extend(&carried);
        let made = cx.subgraph(body, &given)?;
        on = match goes_on(cx, Some(made[0])) {
            Some(on) => on,
            None => return while_(cx, n_scans),
        };
        carried = made[1..=n_carried].to_vec();
        for (k, &v) in made[1 + n_carried..].iter().enumerate() {
            kinds[k] = cx.im.elem(v);
            scans[k].push(cx.im.value(v)?);
        }
    }
    let mut outs: Vec<Out> = carried.into_iter().map(Out::Same).collect();
    for (values, kind) in scans.into_iter().zip(kinds) {
        outs.push(match values.is_empty() {
            true => Out::Absent,
            false => Out::Value(cx.push(Stack { values, axis: 0 })?, kind),
        });
    }
    Ok(outs)
}

/// A loop that decides while running how often it turns.
fn while_(cx: &mut Cx<'_, '_>, n_scans: usize) -> Outs {
    if n_scans > 0 {
        let why = "how often it turns is not known before running, and it collects results";
        return Err(Why::from(why));
    }
    let body = cx.graph_attr("body")?;
    let scalar = |cx: &mut Cx<'_, '_>, v: Value| {
        let rank = cx.rank(v);
        cx.squeeze(v, &(0..rank).collect::<Vec<_>>())
    };
    let limit = match cx.opt(0)? {
        Some(v) => Some(scalar(cx, v)?),
        None => None,
    };
    let start = cx.int_like(0)?;
    let on = match cx.opt(1)? {
        Some(v) => scalar(cx, v)?,
        None => cx.number_of(1.0, DType::Bool)?,
    };
    let (mut vars, mut kinds) = (vec![start, on], vec![Elem::I64, Elem::Bool]);
    for i in 2..cx.n_inputs() {
        vars.push(cx.x(i)?);
        kinds.push(cx.elem(i));
    }
    let types: Vec<Type> = vars.iter().map(|&v| cx.im.graph.ty(v).clone()).collect();
    let inputs = |cx: &mut Cx<'_, '_>, block| -> Vec<Value> {
        let mut all = Vec::new();
        for ty in &types {
            let name = cx.name("var");
            all.push(cx.im.graph.add_block_input(block, &name, ty.clone()));
        }
        all
    };
    let (condition, ()) = cx.in_block(|cx, block| {
        let vars = inputs(cx, block);
        let goes_on = match limit {
            Some(limit) => {
                let less = cx.push(Less { x: vars[0], y: limit })?;
                cx.push(LogicalAnd { x: less, y: vars[1] })?
            }
            None => cx.push(Identity { x: vars[1] })?,
        };
        cx.im.graph.set_block_outputs(block, vec![goes_on]);
        Ok(())
    })?;
    let (turn, ()) = cx.in_block(|cx, block| {
        let vars = inputs(cx, block);
        let given: Vec<Val> =
            vars.iter().zip(&kinds).map(|(&v, &e)| cx.im.computed("var", e, v)).collect();
        let made = cx.subgraph(body, &given)?;
        let one = cx.int_like(1)?;
        let mut outputs = vec![cx.add(vars[0], one)?];
        for v in made {
            outputs.push(own(cx, v)?);
        }
        outputs[1] = scalar(cx, outputs[1])?;
        for (&v, ty) in outputs.iter().zip(&types) {
            let found = cx.im.graph.ty(v);
            if !found.agrees(ty) {
                return Err(Why(format!("a turn makes {found} of {ty}, which no loop of MIL may")));
            }
        }
        cx.im.graph.set_block_outputs(block, outputs);
        Ok(())
    })?;
    let made = cx.push_blocks(WhileLoop { loop_vars: vars }, vec![condition, turn])?;
    Ok(made.into_iter().zip(kinds).skip(2).map(|(v, e)| Out::Value(v, e)).collect())
}

fn scan(cx: &mut Cx<'_, '_>) -> Outs {
    if cx.version < 9 {
        return Err(Why::from("scans of batches (before opset 9) are not read"));
    }
    let body = cx.graph_attr("body")?;
    let n = cx.n_inputs();
    let n_scanned = usize::try_from(cx.int_attr("num_scan_inputs", 0)).unwrap_or(0);
    let n_states = n.checked_sub(n_scanned).filter(|&s| s <= body.output.len());
    let n_states = n_states.ok_or("its body has not the operands of a scan")?;
    let n_made = body.output.len() - n_states;
    let list = |cx: &Cx<'_, '_>, name: &str, len: usize| -> Vec<i64> {
        let mut all = cx.attrs.ints(name).map_or(Vec::new(), <[i64]>::to_vec);
        all.resize(len, 0);
        all
    };
    let (axes, ways) =
        (list(cx, "scan_input_axes", n_scanned), list(cx, "scan_input_directions", n_scanned));
    let (out_axes, out_ways) =
        (list(cx, "scan_output_axes", n_made), list(cx, "scan_output_directions", n_made));
    let mut states = (0..n_states).map(|i| cx.val(i)).collect::<Result<Vec<_>, _>>()?;
    let mut scanned = Vec::new();
    let mut turns = None;
    for (i, &axis) in axes.iter().enumerate() {
        let x = cx.x(n_states + i)?;
        let axis = cx.axis(x, axis)?;
        let extent = cx.need_extent(x, axis, "a scan")? as i64;
        if turns.replace(extent).is_some_and(|n| n != extent) || extent > TURNS_MAX {
            return Err(Why(format!("a scan over {extent} elements")));
        }
        scanned.push((x, axis, cx.elem(n_states + i)));
    }
    let turns = turns.ok_or("it scans nothing")?;
    let mut made: Vec<Vec<Value>> = vec![Vec::new(); n_made];
    let mut kinds = vec![Elem::F32; n_made];
    for turn in 0..turns {
        let mut given = states.clone();
        for (i, &(x, axis, elem)) in scanned.iter().enumerate() {
            let at = if ways[i] == 0 { turn } else { turns - 1 - turn };
            let part = cx.slice(x, axis, at, Some(at + 1))?;
            let part = cx.squeeze(part, &[axis])?;
            given.push(cx.im.computed("scanned", elem, part));
        }
        let results = cx.subgraph(body, &given)?;
        states = results[..n_states].to_vec();
        for (k, &v) in results[n_states..].iter().enumerate() {
            kinds[k] = cx.im.elem(v);
            made[k].push(cx.im.value(v)?);
        }
    }
    let mut outs: Vec<Out> = states.into_iter().map(Out::Same).collect();
    for (k, values) in made.into_iter().enumerate() {
        let Some(&first) = values.first() else {
            outs.push(Out::Absent);
            continue;
        };
        let axis = resolve(out_axes[k], cx.rank(first) + 1)?;
        let mut y = cx.push(Stack { values, axis: axis as i32 })?;
        if out_ways[k] != 0 {
            y = reversed(cx, y, axis)?;
        }
        outs.push(Out::Value(y, kinds[k]));
    }
    Ok(outs)
}
