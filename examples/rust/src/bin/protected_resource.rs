//! A protected resource that checks the token. A lock alone cannot stop a holder that stood still past
//! the end of its lease and writes on when it wakes. The resource can: it keeps the highest token it has
//! seen beside what it stores, and refuses a lower one. Here the resource is a row of SQLite.

use fairlock::{Client, Token, blocking};
use rusqlite::{Connection, params};
use std::error::Error;
use std::time::Duration;

/// Writes if the token is not older than the mark in the row: one statement, so nobody can come in between.
fn write_fenced(resource: &Connection, token: Token, text: &str) -> rusqlite::Result<bool> {
    let rows = resource.execute(
        "UPDATE resource SET text = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
        // Tokens stay below 2⁶³, so that databases can hold them.
        params![text, token.get().cast_signed()],
    )?;
    let written = rows == 1;
    if written {
        println!("{text}: written");
    } else {
        println!("{text}: refused, a newer token has been here");
    }
    Ok(written)
}

fn main() -> Result<(), Box<dyn Error>> {
    let resource = Connection::open_in_memory()?;
    resource.execute_batch(
        "CREATE TABLE resource (id INTEGER PRIMARY KEY, text TEXT, token INTEGER NOT NULL DEFAULT 0);
         INSERT INTO resource (id) VALUES (1);",
    )?;

    let client = blocking::Client::from(Client::builder().build()?);
    let acquire = |who: &str, lease| {
        let lock = client.acquire_with("example:resource", |acquire| acquire.lease(lease))?;
        println!("{who}: token {}", lock.token());
        Ok::<_, fairlock::Error>(lock)
    };

    // The slow writer stands still until its lease is over, and the fast one gets the lock.
    let slow = acquire("slow writer", Duration::from_millis(200))?;
    let fast = acquire("fast writer", Duration::from_secs(30))?;

    let fast_wrote = write_fenced(&resource, fast.token(), "fast writer")?;
    let slow_wrote = write_fenced(&resource, slow.token(), "slow writer")?;

    fast.release()?;
    if !slow.release()? {
        let reason = slow
            .lost_reason()
            .map_or("unknown", |reason| reason.as_str());
        println!("slow writer: had lost the lock ({reason})");
    }
    match (fast_wrote, slow_wrote) {
        (true, false) => Ok(()),
        _ => Err("the fence did not hold".into()),
    }
}
