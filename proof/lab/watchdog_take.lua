-- watchdog_take.lua takes the lock for an owner, again if the
-- owner has it.
--
-- KEYS[1] lock  hash  owner -> times taken
-- ARGV[1] owner · ARGV[2] lease in ms
-- Reply 1 taken · 0 another's
local lock, owner, lease_ms = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', lock) == 1 and redis.call('HEXISTS', lock, owner) == 0 then return 0 end
redis.call('HINCRBY', lock, owner, 1)
redis.call('PEXPIRE', lock, lease_ms)
return 1
