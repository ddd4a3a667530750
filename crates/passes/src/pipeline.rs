//! The passes in the order in which they run.

use russet_ir::Opset;

use crate::{
    AttentionPerHead, CancelLayout, DecomposeNorm, FiniteMasks, FoldBatchNorm, FoldConstants,
    FoldScale, Fp16Outputs, FuseAttention, FuseGelu, FuseLayerNorm, FuseLinear, FuseRmsNorm,
    FuseSilu, LinearToConv, NormOverChannels, Pass, RemoveNoops, ScaleFirst, SinkLayout,
    SplitLinear, ToFp16,
};

/// What the pipeline depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub opset: Opset,
}

/// Every pass towards the Neural Engine, in order.
pub fn pipeline(options: Options) -> Vec<Box<dyn Pass>> {
    let mut passes: Vec<Box<dyn Pass>> = vec![
        Box::new(FoldConstants), // shapes become numbers that later passes can read
        Box::new(RemoveNoops),   // nothing in the way of a pattern
        Box::new(FoldBatchNorm), // before fp16, in which means and what they are taken from cancel
        Box::new(FiniteMasks),   // before fp16, in which they would be infinite
        Box::new(ScaleFirst),    // no integers that only fp32 holds
        Box::new(FuseLinear),    // what the arithmetic of converters and exporters stands for
        Box::new(SplitLinear),   // queries, keys and values of one layer
        Box::new(FuseGelu),      // likewise
        Box::new(FuseSilu),      // likewise
        Box::new(FuseLayerNorm), // likewise
        Box::new(FuseRmsNorm),   // likewise
        Box::new(LinearToConv),  // each with its own changes of layout
        Box::new(NormOverChannels), // likewise
        Box::new(AttentionPerHead), // likewise; it looks for heads on (B, S, C)
    ];
    if options.opset >= Opset::Ios18 {
        passes.push(Box::new(FuseAttention)); // what could not be taken apart
    }
    passes.extend([
        Box::new(SinkLayout) as Box<dyn Pass>, // changes of layout meet their opposites
        Box::new(CancelLayout),                // and go
        Box::new(FoldScale), // the query's factor now stands right after its convolution
        Box::new(DecomposeNorm), // for enumerated lengths only
        Box::new(ToFp16),    // on the final ops, so that each is cast once
    ]);
    if options.opset >= Opset::Ios16 {
        passes.push(Box::new(Fp16Outputs)); // before iOS 16 a function cannot return fp16
    }
    passes.push(Box::new(RemoveNoops)); // casts of what became fp16 anyway
    passes
}
