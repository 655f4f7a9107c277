//! Clusters over a simulated network, from the roles alone to whole members.

mod handoffs;
mod member_world;
mod members;
mod model;
mod old_words;
mod role_world;
mod roles;
mod sleeps;
mod split;
mod strangers;
