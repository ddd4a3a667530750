//! Transformers that denoise pictures, as diffusers keeps them.

mod conditions;
pub mod dit;
mod latents;
pub mod pixart;
