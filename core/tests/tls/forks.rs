//! Rule 4.11 with TLS: a forked child opens channels of its own and touches none of its parent's.
#![allow(unsafe_code)]

use crate::forked::forked;
use crate::support::{LIMIT, World};

#[test]
fn a_client_works_in_the_child_and_goes_on_in_the_parent() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    let lock = client.acquire("parents").call().expect("free");
    for round in 0..10 {
        forked(|| {
            let own = client.acquire(format!("childs {round}")).wait(LIMIT);
            let own = own.call().expect("free");
            let parents = client.try_acquire("parents").call();
            assert!(parents.expect("an answer").is_none());
            assert_eq!(own.release().call(), Ok(true));
        });
        let mine = client.acquire("between").wait(LIMIT).call();
        assert_eq!(mine.expect("free").release().call(), Ok(true));
    }
    assert_eq!(lock.release().call(), Ok(true));
}
