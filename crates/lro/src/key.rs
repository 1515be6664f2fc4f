//! What tells flows apart.

pub(crate) use wire::FlowKey;
