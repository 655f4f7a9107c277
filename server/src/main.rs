//! The fairlock binary.

fn main() {}
