//! Recurrent layers over a sequence `x` `[S, B, I]`: `lstm`, `gru`, `rnn`.

use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, TensorType, Type, Value, Work, op, string_param};

string_param! {
    /// Which way a sequence is read.
    Direction { Forward = "forward", Reverse = "reverse", Bidirectional = "bidirectional" }
}

string_param! {
    /// What follows a gate's sum. Two names of the hard sigmoid are in use.
    Gate {
        Tanh = "tanh",
        ScaledTanh = "scaled_tanh",
        Sigmoid = "sigmoid",
        HardSigmoid = "hard_sigmoid",
        SigmoidHard = "sigmoid_hard",
        Relu = "relu",
        Linear = "linear",
    }
}

op! {
    /// Long short-term memory. Weights are `[4H, I]` and `[4H, H]`, bias `[4H]`, in the order
    /// input, forget, output, cell gate; `peephole` `[3H]` of the first three. States are `[B, H]`,
    /// or `[B, 2H]` when read both ways. Returns the hidden states `[S or 1, B, H]`, then the last
    /// hidden and cell state.
    "lstm" since Ios15 => Lstm {
        x: Value;
        initial_h: Value;
        initial_c: Value;
        weight_ih: Value;
        weight_hh: Value;
        bias: Option<Value>;
        peephole: Option<Value>;
        weight_ih_back: Option<Value>;
        weight_hh_back: Option<Value>;
        bias_back: Option<Value>;
        peephole_back: Option<Value>;
        direction: Direction = Direction::Forward;
        output_sequence: bool = false;
        recurrent_activation: Gate = Gate::Sigmoid;
        cell_activation: Gate = Gate::Tanh;
        activation: Gate = Gate::Tanh;
        clip: Option<f32>;
    }
}
op! {
    /// Gated recurrent unit. Weights are `[3H, I]` and `[3H, H]`, bias `[3H]`, in the order reset,
    /// output, update gate. Returns the hidden states `[S or 1, B, H]` and the last one. With
    /// `reset_after` the reset gate scales the product with the state, not the state.
    "gru" since Ios15 => Gru {
        x: Value;
        initial_h: Value;
        weight_ih: Value;
        weight_hh: Value;
        bias: Option<Value>;
        direction: Direction = Direction::Forward;
        output_sequence: bool = false;
        recurrent_activation: Gate = Gate::Sigmoid;
        activation: Gate = Gate::Tanh;
        reset_after: bool = false, since Ios18;
        input_bias: Option<Value>, since Ios18;
    }
}
op! {
    /// `h = activation(weight_ih x + weight_hh h + bias)`, weights `[H, I]` and `[H, H]`. Returns
    /// the hidden states `[S or 1, B, H]` and the last one.
    "rnn" since Ios15 => Rnn {
        x: Value;
        initial_h: Value;
        weight_ih: Value;
        weight_hh: Value;
        bias: Option<Value>;
        direction: Direction = Direction::Forward;
        output_sequence: bool = false;
        activation: Gate = Gate::Tanh;
    }
}

/// What the layers have in common, to be checked alike.
struct Layer<'a, 't> {
    types: &'a Types<'t>,
    x: Value,
    gates: u64,
    directions: u64,
    output_sequence: bool,
}

impl Layer<'_, '_> {
    /// Checks one direction's weights; returns the number of hidden features `H`.
    fn weights(
        &self,
        ih: Value,
        hh: Value,
        vectors: &[(Option<Value>, u64)],
    ) -> Result<u64, TypeError> {
        let x = self.types.float(self.x)?;
        if x.rank() != 3 {
            return Err(TypeError::Rank { at: self.x, found: x.rank(), expected: "3" });
        }
        for at in [ih, hh] {
            let found = self.types.float(at)?.rank();
            if found != 2 {
                return Err(TypeError::Rank { at, found, expected: "2" });
            }
        }
        let hidden = self.types.float(hh)?.shape[1].fixed();
        let hidden = hidden.ok_or(TypeError::NotConstant { at: hh })?;
        let rows = Dim::Fixed(hidden.saturating_mul(self.gates));
        self.extent(ih, 0, &rows)?;
        self.extent(ih, 1, &x.shape[2])?;
        self.extent(hh, 0, &rows)?;
        for &(v, gates) in vectors {
            let Some(v) = v else { continue };
            let t = self.types.float(v)?;
            if t.rank() != 1 {
                return Err(TypeError::Rank { at: v, found: t.rank(), expected: "1" });
            }
            self.extent(v, 0, &Dim::Fixed(hidden.saturating_mul(gates)))?;
        }
        Ok(hidden)
    }

    fn extent(&self, at: Value, axis: usize, expected: &Dim) -> Result<(), TypeError> {
        let found = &self.types.tensor(at)?.shape[axis];
        let differ = found.fixed().zip(expected.fixed()).is_some_and(|(a, b)| a != b);
        if differ {
            let (found, expected) = (found.clone(), expected.clone());
            return Err(TypeError::Extent { at, axis, found, expected });
        }
        Ok(())
    }

    /// The types of the sequence of hidden states and of one state.
    fn outputs(&self, hidden: u64, states: &[Value]) -> Result<(Type, Type), TypeError> {
        let x = self.types.float(self.x)?;
        let features = Dim::Fixed(hidden.saturating_mul(self.directions));
        let batch = &x.shape[1];
        for &at in states {
            let found = self.types.float(at)?.rank();
            if found != 2 {
                return Err(TypeError::Rank { at, found, expected: "2" });
            }
            self.extent(at, 0, batch)?;
            self.extent(at, 1, &features)?;
        }
        let steps = if self.output_sequence { x.shape[0].clone() } else { Dim::Fixed(1) };
        let ty = |shape: Vec<Dim>| Type::from(TensorType { dtype: x.dtype, shape });
        let sequence = ty(vec![steps, batch.clone(), features.clone()]);
        Ok((sequence, ty(vec![batch.clone(), features])))
    }

    /// Products of `hidden` features at every step, both ways.
    fn work(&self, hidden: Value) -> Work {
        let Ok(x) = self.types.tensor(self.x) else { return Work::default() };
        let hidden = self.types.tensor(hidden).ok().and_then(|t| t.shape.get(1)?.fixed());
        let (hidden, shape) = (hidden.unwrap_or(0), x.fixed_shape().unwrap_or(vec![0; 3]));
        let [steps, batch, inputs] = shape[..] else { return Work::default() };
        let rows = [steps, batch, hidden, self.gates, self.directions]
            .iter()
            .fold(1u64, |n, &d| n.saturating_mul(d));
        let macs = rows.saturating_mul(inputs.saturating_add(hidden));
        Work { macs, flops: rows, exps: rows }
    }
}

fn unidirectional(direction: Direction) -> Result<(), TypeError> {
    match direction {
        Direction::Bidirectional => Err(TypeError::param("it reads forward or in reverse")),
        _ => Ok(()),
    }
}

impl Lstm {
    fn layer<'a, 't>(&self, types: &'a Types<'t>) -> Layer<'a, 't> {
        let directions = if self.direction == Direction::Bidirectional { 2 } else { 1 };
        let output_sequence = self.output_sequence;
        Layer { types, x: self.x, gates: 4, directions, output_sequence }
    }
}

impl OpDef for Lstm {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let layer = self.layer(types);
        let vectors = [(self.bias, 4), (self.peephole, 3)];
        let hidden = layer.weights(self.weight_ih, self.weight_hh, &vectors)?;
        if layer.directions == 2 {
            let back = self.weight_ih_back.zip(self.weight_hh_back);
            let (ih, hh) =
                back.ok_or_else(|| TypeError::param("weights of one way are missing"))?;
            let back = layer.weights(ih, hh, &[(self.bias_back, 4), (self.peephole_back, 3)])?;
            if back != hidden {
                return Err(TypeError::param(format!(
                    "{hidden} features one way, {back} the other"
                )));
            }
        }
        let (sequence, state) = layer.outputs(hidden, &[self.initial_h, self.initial_c])?;
        Ok(Outputs(vec![(sequence, None), (state.clone(), None), (state, None)]))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        self.layer(types).work(self.weight_hh)
    }
}

impl Gru {
    fn layer<'a, 't>(&self, types: &'a Types<'t>) -> Layer<'a, 't> {
        let output_sequence = self.output_sequence;
        Layer { types, x: self.x, gates: 3, directions: 1, output_sequence }
    }
}

impl OpDef for Gru {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        unidirectional(self.direction)?;
        let layer = self.layer(types);
        let vectors = [(self.bias, 3), (self.input_bias, 3)];
        let hidden = layer.weights(self.weight_ih, self.weight_hh, &vectors)?;
        let (sequence, state) = layer.outputs(hidden, &[self.initial_h])?;
        Ok(Outputs(vec![(sequence, None), (state, None)]))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        self.layer(types).work(self.weight_hh)
    }
}

impl Rnn {
    fn layer<'a, 't>(&self, types: &'a Types<'t>) -> Layer<'a, 't> {
        let output_sequence = self.output_sequence;
        Layer { types, x: self.x, gates: 1, directions: 1, output_sequence }
    }
}

impl OpDef for Rnn {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        unidirectional(self.direction)?;
        let layer = self.layer(types);
        let hidden = layer.weights(self.weight_ih, self.weight_hh, &[(self.bias, 1)])?;
        let (sequence, state) = layer.outputs(hidden, &[self.initial_h])?;
        Ok(Outputs(vec![(sequence, None), (state, None)]))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        self.layer(types).work(self.weight_hh)
    }
}
