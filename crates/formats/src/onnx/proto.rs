//! The messages of an ONNX file that say what a model computes, by field number.
//!
//! Field numbers are those of `onnx.proto` (IR version 13). Doc strings, training information and
//! whatever is newer stay in each message's `unknown`. Contents of tensors are slices of the file.

use bytes::Bytes;
use prost::Oneof;

use crate::mlpackage::proto::message::message;

message! {
    ModelProto {
        1 => ir_version: is(i64);
        2 => producer_name: is(String);
        3 => producer_version: is(String);
        7 => graph: is(Option<GraphProto>);
        8 => opset_import: is(Vec<OperatorSetIdProto>);
        14 => metadata_props: is(Vec<StringStringEntryProto>);
        25 => functions: is(Vec<FunctionProto>);
    }

    OperatorSetIdProto {
        1 => domain: is(String);
        2 => version: is(i64);
    }

    StringStringEntryProto {
        1 => key: is(String);
        2 => value: is(String);
    }

    GraphProto {
        1 => node: is(Vec<NodeProto>);
        2 => name: is(String);
        5 => initializer: is(Vec<TensorProto>);
        11 => input: is(Vec<ValueInfoProto>);
        12 => output: is(Vec<ValueInfoProto>);
        15 => sparse_initializer: is(Vec<SparseTensorProto>);
    }

    NodeProto {
        1 => input: is(Vec<String>);
        2 => output: is(Vec<String>);
        3 => name: is(String);
        4 => op_type: is(String);
        5 => attribute: is(Vec<AttributeProto>);
        7 => domain: is(String);
        8 => overload: is(String);
    }

    AttributeProto {
        1 => name: is(String);
        2 => f: is(f32);
        3 => i: is(i64);
        4 => s: is(Bytes);
        5 => t: is(Option<TensorProto>);
        6 => g: is(Option<GraphProto>);
        7 => floats: is(Vec<f32>);
        8 => ints: is(Vec<i64>);
        9 => strings: is(Vec<Bytes>);
        20 => r#type: is(i32);
        21 => ref_attr_name: is(String);
        22 => sparse_tensor: is(Option<SparseTensorProto>);
    }

    /// A function a model brings along: a node that names it stands for its nodes.
    FunctionProto {
        1 => name: is(String);
        4 => input: is(Vec<String>);
        5 => output: is(Vec<String>);
        6 => attribute: is(Vec<String>);
        7 => node: is(Vec<NodeProto>);
        9 => opset_import: is(Vec<OperatorSetIdProto>);
        10 => domain: is(String);
        11 => attribute_proto: is(Vec<AttributeProto>);
        13 => overload: is(String);
    }

    TensorProto {
        1 => dims: is(Vec<i64>);
        2 => data_type: is(i32);
        4 => float_data: is(Vec<f32>);
        /// Of all types of at most 32 bits that are not float; 16-bit floats as their bits.
        5 => int32_data: is(Vec<i32>);
        6 => string_data: is(Vec<Bytes>);
        7 => int64_data: is(Vec<i64>);
        8 => name: is(String);
        /// Little-endian elements; those of less than a byte packed, least significant bits first.
        9 => raw_data: is(Bytes);
        10 => double_data: is(Vec<f64>);
        11 => uint64_data: is(Vec<u64>);
        /// `location`, `offset` and `length` of the elements in another file.
        13 => external_data: is(Vec<StringStringEntryProto>);
        /// 1 when they are there.
        14 => data_location: is(i32);
    }

    /// `values` at `indices`, zero elsewhere.
    SparseTensorProto {
        1 => values: is(Option<TensorProto>);
        2 => indices: is(Option<TensorProto>);
        3 => dims: is(Vec<i64>);
    }

    ValueInfoProto {
        1 => name: is(String);
        2 => r#type: is(Option<TypeProto>);
    }

    TypeProto {
        1 => tensor_type: is(Option<TensorTypeProto>);
    }

    TensorTypeProto {
        1 => elem_type: is(i32);
        /// Absent when not even the rank is known.
        2 => shape: is(Option<TensorShapeProto>);
    }

    TensorShapeProto {
        1 => dim: is(Vec<DimensionProto>);
    }

    /// Nothing when the extent is not known and has no name.
    DimensionProto {
        1 | 2 => value: oneof(DimensionValue);
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub enum DimensionValue {
    #[prost(int64, tag = "1")]
    Value(i64),
    #[prost(string, tag = "2")]
    Param(String),
}

/// Does `bytes` begin as an ONNX model does? Looks at the fields of the outermost message only.
///
/// A Core ML model begins the same way, but has its description in field 2 and all else from field
/// 10 on; a graph (7) beside a list of op sets (8) is only in ONNX.
pub fn looks_like_model(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let (mut graph, mut opsets, mut n_fields) = (false, false, 0);
    while !rest.is_empty() && n_fields < 1 << 16 {
        n_fields += 1;
        let Some(tag) = varint(&mut rest) else { return false };
        let (field, wire) = (tag >> 3, tag & 7);
        if !(1..=32).contains(&field) {
            return false;
        }
        let n = match wire {
            0 => match varint(&mut rest) {
                Some(_) => 0,
                None => return false,
            },
            1 => 8,
            2 => match varint(&mut rest) {
                Some(n) => n,
                None => return false,
            },
            5 => 4,
            _ => return false,
        };
        match (field, wire) {
            (7, 2) => graph = true,
            (8, 2) => opsets = true,
            (7 | 8, _) | (1, 1..) => return false,
            _ => {}
        }
        match usize::try_from(n).ok().and_then(|n| rest.get(n..)) {
            Some(after) => rest = after,
            // Cut short; what came before may tell.
            None => return graph,
        }
    }
    graph && opsets
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for i in 0..10 {
        let (&b, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(b & 0x7f) << (7 * i).min(63);
        if b < 0x80 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn a_model_is_told_from_others() {
        let opset_import = vec![OperatorSetIdProto { version: 17, ..Default::default() }];
        let graph = Some(GraphProto { name: "g".into(), ..Default::default() });
        let model = ModelProto { ir_version: 8, graph, opset_import, ..Default::default() };
        let bytes = model.encode_to_vec();
        assert!(looks_like_model(&bytes));
        let core_ml = crate::mlpackage::proto::Model {
            specification_version: 8,
            description: Some(Default::default()),
            ml_program: Some(Default::default()),
            ..Default::default()
        };
        assert!(!looks_like_model(&core_ml.encode_to_vec()));
        assert!(!looks_like_model(b""));
        assert!(!looks_like_model(b"\x89PNG\r\n"));
    }
}
