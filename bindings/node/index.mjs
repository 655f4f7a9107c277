import fairlock from './index.js'

export const {
  Client,
  Lock,
  Server,
  Fence,
  FairlockError,
  WaitTimeout,
  ConnectionFailed,
  Refused,
  LockLost,
  ReleaseUnconfirmed,
  StaleToken,
  ClientClosed,
  ServerError,
} = fairlock
