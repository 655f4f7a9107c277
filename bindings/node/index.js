'use strict'

module.exports = {
  Client: require('./lib/client').Client,
  Lock: require('./lib/lock').Lock,
  Server: require('./lib/server').Server,
  Fence: require('./lib/fence').Fence,
  ...require('./lib/errors').classes,
}
