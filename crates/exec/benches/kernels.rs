//! The main kernels: `cargo bench -p russet-exec --bench kernels`.

fn main() {
    divan::main();
}
