-- watchdog_renew.lua extends a lock, if the owner still has it.
--
-- KEYS[1] lock  hash  owner -> times taken
-- ARGV[1] owner · ARGV[2] lease in ms
-- Reply 1 renewed · 0 not the owner's
local lock, owner, lease_ms = KEYS[1], ARGV[1], ARGV[2]
if redis.call('HEXISTS', lock, owner) == 0 then return 0 end
return redis.call('PEXPIRE', lock, lease_ms)
