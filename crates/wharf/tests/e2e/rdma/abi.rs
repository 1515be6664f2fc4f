//! What the man pages of verbs say of calls beyond what they are for: a program of the tests' own.

use super::manager::case_of;

fn case(name: &str) {
    case_of("abi.c", name);
}

#[test]
fn a_batch_is_posted_as_a_whole_or_not_at_all() {
    case("whole_batches");
}

#[test]
fn answers_are_those_of_rdma_core() {
    case("answers");
}

#[test]
fn a_cancelled_thread_ends_and_its_process_goes_on() {
    case("cancelled_threads");
}

#[test]
fn the_child_of_a_fork_has_no_device_and_may_begin_anew() {
    case("forked");
}

#[test]
fn an_entry_is_read_by_one_thread() {
    case("read_by_threads");
}

#[test]
fn what_cannot_be_done_is_refused_where_it_is_posted() {
    case("refused_posts");
}

#[test]
fn a_port_is_the_same_by_whatever_form_of_the_call() {
    case("ports");
}

#[test]
fn a_gid_is_the_same_by_whatever_call() {
    case("gids");
}

#[test]
fn a_region_is_at_the_address_that_the_program_says() {
    case("other_addresses");
}

#[test]
fn what_is_not_there_leaves_what_is() {
    case("not_there");
}
