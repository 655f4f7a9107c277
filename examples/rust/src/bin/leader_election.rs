//! Leader election: who holds the lock leads, and keep-alive holds it for as long as the leader lives.
//! A leader that loses the lock is told before anybody else can have it, and stops leading.

use fairlock::{Client, Error};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// How long nobody leads if the leader dies.
const LEASE: Duration = Duration::from_secs(1);

/// Stands for election and leads for `term`, or until the lead is lost. `elected` is told in between.
async fn campaign(name: &str, term: Duration, elected: oneshot::Sender<()>) -> Result<(), Error> {
    let client = Client::builder().build()?;
    let lock = client
        .acquire("example:leader")
        .lease(LEASE)
        .keep_alive()
        .await?;
    println!("{name} leads");
    // Nobody needs to listen.
    let _ = elected.send(());

    tokio::select! {
        reason = lock.lost() => {
            println!("{name} has lost the lead: {reason}");
            return Ok(());
        }
        () = lead(term) => {}
    }
    if term > LEASE {
        println!("{name} still leads after more than a lease");
    }
    println!("{name} steps down");
    // The next in line leads at once.
    lock.release().await?;
    Ok(())
}

/// What only a leader does.
async fn lead(term: Duration) {
    sleep(term).await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let (elected, alpha_leads) = oneshot::channel();
    let alpha = campaign("alpha", Duration::from_millis(1250), elected);
    let beta = async {
        // So that alpha is the first in line. If it never leads, it says why.
        if alpha_leads.await.is_ok() {
            let (elected, _) = oneshot::channel();
            campaign("beta", Duration::from_millis(50), elected).await?;
        }
        Ok(())
    };
    tokio::try_join!(alpha, beta)?;
    Ok(())
}
