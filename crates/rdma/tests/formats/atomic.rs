//! Atomic operations, against their definition bit by bit.

use proptest::prelude::*;
use rdma::rdmap::atomic::{Operation, Request};

/// RFC 7306 section 5.1.1: the carry out of a bit of the mask is lost.
fn add_by_bits(value: u64, add: u64, mask: u64) -> u64 {
    let (mut result, mut carry) = (0, 0);
    for bit in 0..64 {
        let sum = (value >> bit & 1) + (add >> bit & 1) + carry;
        result |= (sum & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
    }
    result
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(add, mask)| Operation::FetchAdd { add, mask }),
        any::<[u64; 4]>().prop_map(|[compare, compare_mask, swap, swap_mask]| {
            Operation::CompareSwap { compare, compare_mask, swap, swap_mask }
        }),
    ]
}

proptest! {
    #[test]
    fn fetch_add_is_a_sum_of_fields(value: u64, add: u64, mask: u64) {
        let result = Operation::FetchAdd { add, mask }.apply(value);
        prop_assert_eq!(result, add_by_bits(value, add, mask));
        prop_assert_eq!(Operation::fetch_add(add).apply(value), value.wrapping_add(add));
    }

    #[test]
    fn compare_swap_looks_at_and_stores_the_masked_bits(
        value: u64,
        [compare, compare_mask, swap, swap_mask]: [u64; 4],
    ) {
        let operation = Operation::CompareSwap { compare, compare_mask, swap, swap_mask };
        // What is compared is equal in half of the cases.
        let compare = if compare & 1 == 0 { value } else { compare };
        let equal = Operation::CompareSwap { compare, compare_mask, swap, swap_mask };
        let stored = value & !swap_mask | swap & swap_mask;
        let expected = |compare: u64| {
            if (0..64).all(|bit| compare_mask >> bit & 1 == 0 || value >> bit & 1 == compare >> bit & 1) {
                stored
            } else {
                value
            }
        };
        prop_assert_eq!(equal.apply(value), expected(compare));
        let Operation::CompareSwap { compare, .. } = operation else { unreachable!() };
        prop_assert_eq!(operation.apply(value), expected(compare));
    }

    #[test]
    fn requests(id: u32, stag: u32, offset: u64, operation in operation()) {
        let request = Request { id, stag, offset, operation };
        prop_assert_eq!(Request::parse(&request.encode()), Some(request));
    }

    #[test]
    fn only_two_codes_are_operations(code: u32) {
        let mut bytes = Request { id: 1, stag: 2, offset: 8, operation: Operation::fetch_add(1) }.encode();
        bytes[..4].copy_from_slice(&code.to_be_bytes());
        // RFC 7306 section 5.2.1: the upper 28 bits are reserved.
        prop_assert_eq!(Request::parse(&bytes).is_some(), matches!(code & 0xf, 0 | 2));
    }
}
