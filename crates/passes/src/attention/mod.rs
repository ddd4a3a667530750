//! Attention: found in its arithmetic, taken apart by heads, or made one op.

mod fused;
mod pattern;
mod per_head;

pub use fused::FuseAttention;
pub use per_head::AttentionPerHead;
