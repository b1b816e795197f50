-- watchdog_give.lua gives back one taking of the lock, and the lock with the last one, if it is still the owner's.
--
-- KEYS[1] lock  hash  owner -> times taken
-- ARGV[1] owner
-- Reply 1 given back · 0 not the owner's, and nothing was done
local lock, owner = KEYS[1], ARGV[1]
if redis.call('HEXISTS', lock, owner) == 0 then return 0 end
if redis.call('HINCRBY', lock, owner, -1) <= 0 then redis.call('DEL', lock) end
return 1
