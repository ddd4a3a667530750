//! Recurrent layers: one product for all steps' inputs, then a small one at each step.

use russet_ir::Value;
use russet_ir::ops::{Direction, Gate, Gru, Lstm, Rnn};

use super::{Operands, checked_len};
use crate::kernels::gemm::{Bias, Epilogue, PackedRight, Rows, View, multiply};
use crate::kernels::math;
use crate::{Array, ExecError};

fn activate(gate: Gate, x: f32) -> f32 {
    match gate {
        Gate::Tanh => math::tanh(x),
        // Constants of Core ML's layers (NeuralNetwork.proto).
        Gate::ScaledTanh => 1.7159 * math::tanh(2.0 / 3.0 * x),
        Gate::Sigmoid => math::sigmoid(x),
        Gate::HardSigmoid | Gate::SigmoidHard => (0.2 * x + 0.5).clamp(0.0, 1.0),
        Gate::Relu => math::relu(x),
        Gate::Linear => x,
    }
}

/// One direction of a layer: its weights, ready, and the products of its inputs.
struct Layer {
    /// `weight_ih x + bias`, `[steps * batch, gates * hidden]`.
    inputs: Vec<f32>,
    recurrent: PackedRight,
    steps: usize,
    batch: usize,
    hidden: usize,
    gates: usize,
}

impl Layer {
    fn new(
        x: &Operands<'_>,
        sequence: Value,
        (ih, hh): (Value, Value),
        bias: &[Option<Value>],
        gates: usize,
    ) -> Result<Layer, ExecError> {
        let (a, ih, hh) = (x.array(sequence)?, x.array(ih)?, x.array(hh)?);
        let ([steps, batch, features], [rows, depth], [rows_h, hidden]) =
            (&a.shape[..], &ih.shape[..], &hh.shape[..])
        else {
            return Err(x.fail("its operands have not the ranks 3, 2 and 2"));
        };
        if depth != features || rows != rows_h || *rows != gates * hidden {
            let (ih, hh) = (&ih.shape, &hh.shape);
            return Err(x.fail(format!("{:?} with weights of {ih:?} and {hh:?}", a.shape)));
        }
        let mut total = vec![0.0; *rows];
        for &v in bias.iter().flatten() {
            let b = x.array(v)?;
            let b = x.floats(&b)?;
            if b.len() != *rows {
                return Err(x.fail(format!("a bias of {} for {rows}", b.len())));
            }
            total.iter_mut().zip(b).for_each(|(t, b)| *t += b);
        }
        let mut inputs = vec![0.0; checked_len(&[steps * batch, *rows])?];
        let left = View::new(x.floats(&a)?, steps * batch, *depth);
        let right = View::new(x.floats(&ih)?, *rows, *depth).transposed();
        let epilogue = Epilogue { bias: Bias::PerColumn(&total), ..Epilogue::default() };
        multiply(left, right, Rows::new(&mut inputs, steps * batch, *rows), &epilogue);
        let recurrent = View::new(x.floats(&hh)?, *rows, *hidden).transposed();
        let recurrent = PackedRight::new(recurrent);
        let (steps, batch, hidden) = (*steps, *batch, *hidden);
        Ok(Layer { inputs, recurrent, steps, batch, hidden, gates })
    }

    /// `weight_hh h` of the whole batch.
    fn product(&self, h: &[f32], out: &mut [f32]) {
        let rows = self.gates * self.hidden;
        let left = View::new(h, self.batch, self.hidden);
        multiply(left, &self.recurrent, Rows::new(out, self.batch, rows), &Epilogue::default());
    }

    /// Steps in the order they are read.
    fn order(&self, reverse: bool) -> Box<dyn Iterator<Item = usize>> {
        let steps = 0..self.steps;
        if reverse { Box::new(steps.rev()) } else { Box::new(steps) }
    }
}

/// The columns of one direction of a state `[B, directions * H]`.
fn part(
    x: &Operands<'_>,
    v: Value,
    (batch, hidden): (usize, usize),
    (direction, directions): (usize, usize),
) -> Result<Vec<f32>, ExecError> {
    let a = x.array(v)?;
    let whole = directions * hidden;
    if a.shape != [batch, whole] {
        return Err(x.fail(format!("a state of {:?}, not of {:?}", a.shape, [batch, whole])));
    }
    let rows = x.floats(&a)?.chunks_exact(whole.max(1));
    Ok(rows.flat_map(|row| &row[direction * hidden..][..hidden]).copied().collect())
}

/// Hidden states of one direction: of all steps, in their order, and the last one read.
struct Read {
    sequence: Vec<f32>,
    last: Vec<Vec<f32>>,
}

/// The outputs of a layer of one or two directions: the sequence, then each state.
fn outputs(
    x: &Operands<'_>,
    parts: Vec<Read>,
    (steps, batch, hidden): (usize, usize, usize),
    output_sequence: bool,
) -> Result<Vec<Array>, ExecError> {
    let whole = parts.len() * hidden;
    let side_by_side = |columns: Vec<&Vec<f32>>, rows: usize| {
        let mut out = Vec::with_capacity(rows * whole);
        for row in 0..rows {
            columns.iter().for_each(|c| out.extend_from_slice(&c[row * hidden..][..hidden]));
        }
        out
    };
    let states = (0..parts[0].last.len()).map(|i| {
        let columns = parts.iter().map(|p| &p.last[i]).collect();
        x.stored(vec![batch, whole], side_by_side(columns, batch))
    });
    let states: Vec<Array> = states.collect();
    let sequence = match output_sequence {
        true => {
            checked_len(&[steps, batch, whole])?;
            let columns = parts.iter().map(|p| &p.sequence).collect();
            x.stored(vec![steps, batch, whole], side_by_side(columns, steps * batch))
        }
        false => Array { shape: vec![1, batch, whole], data: states[0].data.clone() },
    };
    Ok(std::iter::once(sequence).chain(states).collect())
}

pub(super) fn lstm(x: &Operands<'_>, op: &Lstm) -> Result<Vec<Array>, ExecError> {
    let forward = (op.weight_ih, op.weight_hh, op.bias, op.peephole);
    let back = || Some((op.weight_ih_back?, op.weight_hh_back?, op.bias_back, op.peephole_back));
    let ways = match op.direction {
        Direction::Forward => vec![(forward, false)],
        Direction::Reverse => vec![(forward, true)],
        Direction::Bidirectional => {
            let back = back().ok_or_else(|| x.fail("weights of one way are missing"))?;
            vec![(forward, false), (back, true)]
        }
    };
    let n_ways = ways.len();
    let (mut parts, mut extents) = (Vec::new(), (0, 0, 0));
    for (i, ((ih, hh, bias, peephole), reverse)) in ways.into_iter().enumerate() {
        let layer = Layer::new(x, op.x, (ih, hh), &[bias], 4)?;
        let (batch, hidden) = (layer.batch, layer.hidden);
        extents = (layer.steps, batch, hidden);
        let mut h = part(x, op.initial_h, (batch, hidden), (i, n_ways))?;
        let mut c = part(x, op.initial_c, (batch, hidden), (i, n_ways))?;
        let peephole = x.optional(peephole)?;
        let peephole = peephole.as_deref().map(|p| x.floats(p)).transpose()?;
        if peephole.is_some_and(|p| p.len() != 3 * hidden) {
            return Err(x.fail("a peephole of another size"));
        }
        let peep =
            |gate: usize, j: usize, c: f32| peephole.map_or(0.0, |p| p[gate * hidden + j] * c);
        let mut sequence = vec![0.0; layer.steps * batch * hidden];
        let mut products = vec![0.0; 4 * batch * hidden];
        for step in layer.order(reverse) {
            layer.product(&h, &mut products);
            for b in 0..batch {
                let row = (step * batch + b) * 4 * hidden;
                let sum = |gate: usize, j: usize| {
                    let at = gate * hidden + j;
                    layer.inputs[row + at] + products[b * 4 * hidden + at]
                };
                for j in 0..hidden {
                    let at = b * hidden + j;
                    let before = c[at];
                    let input = activate(op.recurrent_activation, sum(0, j) + peep(0, j, before));
                    let forget = activate(op.recurrent_activation, sum(1, j) + peep(1, j, before));
                    let cell = activate(op.cell_activation, sum(3, j));
                    let mut now = forget * before + input * cell;
                    if let Some(clip) = op.clip.filter(|&c| c > 0.0) {
                        now = now.clamp(-clip, clip);
                    }
                    let output = activate(op.recurrent_activation, sum(2, j) + peep(2, j, now));
                    c[at] = now;
                    h[at] = output * activate(op.activation, now);
                }
            }
            x.rounding.store(&mut h);
            x.rounding.store(&mut c);
            sequence[step * batch * hidden..][..batch * hidden].copy_from_slice(&h);
        }
        parts.push(Read { sequence, last: vec![h, c] });
    }
    outputs(x, parts, extents, op.output_sequence)
}

pub(super) fn gru(x: &Operands<'_>, op: &Gru) -> Result<Vec<Array>, ExecError> {
    // With `reset_after` the bias of the output gate belongs to the product that is reset.
    let layer = Layer::new(x, op.x, (op.weight_ih, op.weight_hh), &[op.bias, op.input_bias], 3)?;
    let (batch, hidden) = (layer.batch, layer.hidden);
    let inner = match (op.reset_after, op.bias) {
        (true, Some(v)) => {
            let b = x.array(v)?;
            x.floats(&b)?[hidden..2 * hidden].to_vec()
        }
        _ => vec![0.0; hidden],
    };
    let mut h = part(x, op.initial_h, (batch, hidden), (0, 1))?;
    let mut sequence = vec![0.0; layer.steps * batch * hidden];
    let mut products = vec![0.0; 3 * batch * hidden];
    for step in layer.order(op.direction == Direction::Reverse) {
        layer.product(&h, &mut products);
        for b in 0..batch {
            let input = &layer.inputs[(step * batch + b) * 3 * hidden..][..3 * hidden];
            let product = &products[b * 3 * hidden..][..3 * hidden];
            for j in 0..hidden {
                let gate = |i: usize| input[i * hidden + j] + product[i * hidden + j];
                let reset = activate(op.recurrent_activation, gate(0));
                let update = activate(op.recurrent_activation, gate(2));
                let own = input[hidden + j] - inner[j] + reset * (product[hidden + j] + inner[j]);
                let output = activate(op.activation, own);
                let before = &mut h[b * hidden + j];
                *before = (1.0 - update) * output + update * *before;
            }
        }
        x.rounding.store(&mut h);
        sequence[step * batch * hidden..][..batch * hidden].copy_from_slice(&h);
    }
    let extents = (layer.steps, batch, hidden);
    outputs(x, vec![Read { sequence, last: vec![h] }], extents, op.output_sequence)
}

pub(super) fn rnn(x: &Operands<'_>, op: &Rnn) -> Result<Vec<Array>, ExecError> {
    let layer = Layer::new(x, op.x, (op.weight_ih, op.weight_hh), &[op.bias], 1)?;
    let (batch, hidden) = (layer.batch, layer.hidden);
    let mut h = part(x, op.initial_h, (batch, hidden), (0, 1))?;
    let mut sequence = vec![0.0; layer.steps * batch * hidden];
    let mut products = vec![0.0; batch * hidden];
    for step in layer.order(op.direction == Direction::Reverse) {
        layer.product(&h, &mut products);
        let inputs = &layer.inputs[step * batch * hidden..][..batch * hidden];
        for ((h, i), p) in h.iter_mut().zip(inputs).zip(&products) {
            *h = activate(op.activation, i + p);
        }
        x.rounding.store(&mut h);
        sequence[step * batch * hidden..][..batch * hidden].copy_from_slice(&h);
    }
    let extents = (layer.steps, batch, hidden);
    outputs(x, vec![Read { sequence, last: vec![h] }], extents, op.output_sequence)
}
