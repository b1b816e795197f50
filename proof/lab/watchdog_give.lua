-- watchdog_give.lua returns one taking of the lock, and releases
-- the lock with the last, if the owner still has it.
--
-- KEYS[1] lock  hash  owner -> times taken
-- ARGV[1] owner
-- Reply 1 returned · 0 not the owner's, and nothing was done
local lock, owner = KEYS[1], ARGV[1]
if redis.call('HEXISTS', lock, owner) == 0 then return 0 end
if redis.call('HINCRBY', lock, owner, -1) <= 0 then redis.call('DEL', lock) end
return 1
