//! Recurrent layers. ONNX has the gates in another order, and a bias for each of the two products.

use russet_ir::ops::*;
use russet_ir::{Dim, Opset, Value};

use super::super::cx::{Cx, Import, Outs, Part};
use super::super::importer::{Out, Why};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "LSTM" => lstm,
        "GRU" => gru,
        "RNN" => rnn,
        _ => return None,
    })
}

/// What the three layers have in common.
struct Layer {
    /// `[S, B, I]`.
    x: Value,
    /// One for each direction.
    ways: Vec<Way>,
    batch: Part,
    hidden: u64,
    /// Are batches the first axis of what is given and returned?
    batch_first: bool,
}

/// One direction: weights with the gates in MIL's order.
struct Way {
    reverse: bool,
    /// `[gates * H, I]` and `[gates * H, H]`.
    ih: Value,
    hh: Value,
    /// `[gates * H]` each: of the product with the input, of that with the state.
    biases: Option<(Value, Value)>,
}

/// Rows of all gates of `v`, in another order.
fn reordered(cx: &mut Cx<'_, '_>, v: Value, hidden: u64, order: &[usize]) -> Result<Value, Why> {
    if order.iter().copied().eq(0..order.len()) {
        return Ok(v);
    }
    let h = hidden as i64;
    let gate = |cx: &mut Cx<'_, '_>, &g: &usize| {
        let g = g as i64;
        cx.slice(v, 0, g * h, Some((g + 1) * h))
    };
    let gates = order.iter().map(|g| gate(cx, g)).collect::<Result<Vec<_>, _>>()?;
    cx.concat(gates, 0)
}

/// The part of `v` `[directions, ..]` of one direction.
fn of_way(cx: &mut Cx<'_, '_>, v: Value, way: usize) -> Result<Value, Why> {
    let part = match cx.shape(v).first() {
        Some(Dim::Fixed(1)) => v,
        _ => cx.slice(v, 0, way as i64, Some(way as i64 + 1))?,
    };
    cx.squeeze(part, &[0])
}

impl Layer {
    /// `order`: for each gate of MIL, which of ONNX it is.
    fn of(cx: &mut Cx<'_, '_>, order: &[usize]) -> Result<Layer, Why> {
        let batch_first = cx.flag("layout", false);
        let given = cx.x(0)?;
        if cx.rank(given) != 3 {
            return Err(Why(format!("a sequence of rank {}", cx.rank(given))));
        }
        let x = if batch_first { cx.transpose(given, &[1, 0, 2])? } else { given };
        let (w, r, b) = (cx.x(1)?, cx.x(2)?, cx.opt(3)?);
        let hidden = cx.need_extent(r, 2, "a recurrent layer")?;
        let reverse = match cx.text_attr("direction", "forward") {
            "forward" => vec![false],
            "reverse" => vec![true],
            _ => vec![false, true],
        };
        Layer::whole_sequences(cx, x)?;
        let mut ways = Vec::new();
        let rows = (hidden * order.len() as u64) as i64;
        for (i, &reverse) in reverse.iter().enumerate() {
            let (ih, hh) = (of_way(cx, w, i)?, of_way(cx, r, i)?);
            let ih = reordered(cx, ih, hidden, order)?;
            let hh = reordered(cx, hh, hidden, order)?;
            let biases = match b {
                None => None,
                Some(b) => {
                    let b = of_way(cx, b, i)?;
                    let input = cx.slice(b, 0, 0, Some(rows))?;
                    let state = cx.slice(b, 0, rows, Some(2 * rows))?;
                    let input = reordered(cx, input, hidden, order)?;
                    Some((input, reordered(cx, state, hidden, order)?))
                }
            };
            ways.push(Way { reverse, ih, hh, biases });
        }
        Ok(Layer { x, ways, batch: Part::Of(x, 1), hidden, batch_first })
    }

    /// MIL reads sequences to their end.
    fn whole_sequences(cx: &Cx<'_, '_>, x: Value) -> Result<(), Why> {
        if !cx.has(4) {
            return Ok(());
        }
        let steps = cx.shape(x)[0].fixed();
        let whole = cx.lit(4).and_then(|l| {
            let n = steps? as i64;
            Some(l.as_ints()?.iter().all(|&len| len == n))
        });
        match whole {
            Some(true) => Ok(()),
            _ => {
                Err(Why::from("sequences of different lengths (`sequence_lens`) have no op in MIL"))
            }
        }
    }

    /// The sum of both biases, as most layers of MIL have them.
    fn bias(&self, cx: &mut Cx<'_, '_>, way: usize) -> Result<Option<Value>, Why> {
        match self.ways[way].biases {
            Some((a, b)) => cx.add(a, b).map(Some),
            None => Ok(None),
        }
    }

    /// Initial states `[directions, B, H]` of one direction as `[B, H]`; zeros when absent.
    fn state(&self, cx: &mut Cx<'_, '_>, operand: usize, way: usize) -> Result<Value, Why> {
        match cx.opt(operand)? {
            Some(v) => {
                let v = if self.batch_first { cx.transpose(v, &[1, 0, 2])? } else { v };
                of_way(cx, v, way)
            }
            None => {
                let shape = cx.shape_of(&[self.batch, Part::N(self.hidden)], false)?;
                let zero = cx.number(0.0, self.x)?;
                cx.push(Fill { shape, value: Some(zero) })
            }
        }
    }

    /// Sequences `[S, B, H]` and states `[B, H]`, one for each direction, as ONNX has them.
    fn outputs(&self, cx: &mut Cx<'_, '_>, sequences: Vec<Value>, states: Vec<Vec<Value>>) -> Outs {
        let elem = cx.elem(0);
        let mut outs = Vec::new();
        let mut apart = Vec::new();
        for v in sequences {
            apart.push(cx.expand_dims(v, &[1])?);
        }
        let mut sequence = cx.concat(apart, 1)?;
        if self.batch_first {
            sequence = cx.transpose(sequence, &[2, 0, 1, 3])?;
        }
        outs.push(Out::Value(sequence, elem));
        for both in states {
            let mut state = cx.push(Stack { values: both, axis: 0 })?;
            if self.batch_first {
                state = cx.transpose(state, &[1, 0, 2])?;
            }
            outs.push(Out::Value(state, elem));
        }
        Ok(outs)
    }
}

/// The activations of all directions, of which each has `names`; as MIL has them.
fn gates(cx: &Cx<'_, '_>, absent: &[&str], ways: usize) -> Result<Vec<Gate>, Why> {
    if cx.attrs.has("activation_alpha") || cx.attrs.has("activation_beta") {
        return Err(Why::from(
            "activations with numbers of their own have no place in MIL's layer",
        ));
    }
    let given = cx.attrs.texts("activations").filter(|a| !a.is_empty());
    let given =
        given.unwrap_or_else(|| absent.repeat(ways).iter().map(|s| s.to_string()).collect());
    if given.len() != absent.len() * ways {
        return Err(Why(format!("{} activations", given.len())));
    }
    let gate = |name: &String| match name.to_lowercase().as_str() {
        "sigmoid" => Ok(Gate::Sigmoid),
        "tanh" => Ok(Gate::Tanh),
        "relu" => Ok(Gate::Relu),
        "hardsigmoid" => Ok(Gate::SigmoidHard),
        other => Err(Why(format!("the activation {other:?} has no place in MIL's layer"))),
    };
    let all = given.iter().map(gate).collect::<Result<Vec<_>, _>>()?;
    let first = all[..absent.len()].to_vec();
    if all.chunks(absent.len()).any(|way| way != first) {
        return Err(Why::from("two directions with different activations"));
    }
    Ok(first)
}

fn no_clip(cx: &Cx<'_, '_>) -> Result<(), Why> {
    match cx.attrs.has("clip") {
        true => Err(Why::from("a clip before activations has no place in MIL's layer")),
        false => Ok(()),
    }
}

fn direction(reverse: bool) -> Direction {
    if reverse { Direction::Reverse } else { Direction::Forward }
}

fn lstm(cx: &mut Cx<'_, '_>) -> Outs {
    no_clip(cx)?;
    if cx.flag("input_forget", false) {
        return Err(Why::from("a coupled input and forget gate has no place in MIL's layer"));
    }
    // ONNX: input, output, forget, cell. MIL: input, forget, output, cell.
    let layer = Layer::of(cx, &[0, 2, 1, 3])?;
    let gates = gates(cx, &["Sigmoid", "Tanh", "Tanh"], layer.ways.len())?;
    let (mut sequences, mut last, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..layer.ways.len() {
        let bias = layer.bias(cx, i)?;
        let peephole = match cx.opt(7)? {
            // ONNX: input, output, forget.
            Some(p) => {
                let p = of_way(cx, p, i)?;
                Some(reordered(cx, p, layer.hidden, &[0, 2, 1])?)
            }
            None => None,
        };
        let (initial_h, initial_c) = (layer.state(cx, 5, i)?, layer.state(cx, 6, i)?);
        let way = &layer.ways[i];
        let made = cx.push_all(Lstm {
            x: layer.x,
            initial_h,
            initial_c,
            weight_ih: way.ih,
            weight_hh: way.hh,
            bias,
            peephole,
            weight_ih_back: None,
            weight_hh_back: None,
            bias_back: None,
            peephole_back: None,
            direction: direction(way.reverse),
            output_sequence: true,
            recurrent_activation: gates[0],
            cell_activation: gates[1],
            activation: gates[2],
            clip: None,
        })?;
        sequences.push(made[0]);
        last.push(made[1]);
        cells.push(made[2]);
    }
    layer.outputs(cx, sequences, vec![last, cells])
}

fn gru(cx: &mut Cx<'_, '_>) -> Outs {
    no_clip(cx)?;
    // ONNX: update, reset, hidden. MIL: reset, hidden, update.
    let layer = Layer::of(cx, &[1, 2, 0])?;
    let gates = gates(cx, &["Sigmoid", "Tanh"], layer.ways.len())?;
    let reset_after = cx.flag("linear_before_reset", false);
    if reset_after && cx.opset < Opset::Ios18 {
        return Err(Why::from("a reset after the product (`linear_before_reset`) needs iOS 18"));
    }
    let (mut sequences, mut last) = (Vec::new(), Vec::new());
    for i in 0..layer.ways.len() {
        let (bias, input_bias) = match (reset_after, layer.ways[i].biases) {
            (true, Some((input, state))) => (Some(state), Some(input)),
            _ => (layer.bias(cx, i)?, None),
        };
        let initial_h = layer.state(cx, 5, i)?;
        let way = &layer.ways[i];
        let made = cx.push_all(Gru {
            x: layer.x,
            initial_h,
            weight_ih: way.ih,
            weight_hh: way.hh,
            bias,
            direction: direction(way.reverse),
            output_sequence: true,
            recurrent_activation: gates[0],
            activation: gates[1],
            reset_after,
            input_bias,
        })?;
        sequences.push(made[0]);
        last.push(made[1]);
    }
    layer.outputs(cx, sequences, vec![last])
}

fn rnn(cx: &mut Cx<'_, '_>) -> Outs {
    no_clip(cx)?;
    let layer = Layer::of(cx, &[0])?;
    let gates = gates(cx, &["Tanh"], layer.ways.len())?;
    let (mut sequences, mut last) = (Vec::new(), Vec::new());
    for i in 0..layer.ways.len() {
        let bias = layer.bias(cx, i)?;
        let initial_h = layer.state(cx, 5, i)?;
        let way = &layer.ways[i];
        let made = cx.push_all(Rnn {
            x: layer.x,
            initial_h,
            weight_ih: way.ih,
            weight_hh: way.hh,
            bias,
            direction: direction(way.reverse),
            output_sequence: true,
            activation: gates[0],
        })?;
        sequences.push(made[0]);
        last.push(made[1]);
    }
    layer.outputs(cx, sequences, vec![last])
}
