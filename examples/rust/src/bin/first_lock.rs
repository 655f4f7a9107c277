//! A first lock: take it, do the work with its token, let it go.

use fairlock::{Client, Error, ErrorKind};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let key = "example:order:42";

    // The servers of FAIRLOCK_SERVERS, or 127.0.0.1:7420; `Client::connect("…")` names others.
    let client = Client::builder().build()?;

    let acquired = client
        .acquire(key)
        .lease(Duration::from_secs(30)) // If this process dies, others wait no longer than this.
        .wait(Duration::from_secs(5))
        .await;
    let lock = match acquired {
        Ok(lock) => lock,
        Err(error) if *error.kind() == ErrorKind::WaitTimeout => {
            println!("somebody else holds {key}");
            return Err(error);
        }
        Err(error) => return Err(error),
    };

    // What is protected should be given the token, so that it can refuse an older one.
    println!("holding {key}, token {}", lock.token());

    lock.release().await?;
    println!("released {key}");
    Ok(())
}
