//! Transformers that denoise pictures, as diffusers keeps them.

mod conditions;
pub mod dit;
pub mod flux;
mod joint;
mod latents;
pub mod pixart;
pub mod sd3;
