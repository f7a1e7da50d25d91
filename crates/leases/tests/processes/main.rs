//! Leases between real processes.

mod support;
mod together;
mod trouble;

#[test]
#[ignore = "a program for other tests"]
fn peer() {
    support::carry_out_requests();
}
