-- forget.lua removes the tombstone of an eviction that MySQL has recorded.
--
-- KEYS[1] evicted  string  "epoch:seq"
--
-- ARGV[1] tombstone  the one that MySQL has recorded; another one stays
--
-- Reply {0} it is gone · {2, which} damaged: the key of that number · {3} another tombstone is here, untouched
local evicted_key = KEYS[1]

local evicted_type = redis.call('TYPE', evicted_key)['ok']
if evicted_type == 'none' then return {0} end
if evicted_type ~= 'string' then return {2, 1} end
if redis.call('GET', evicted_key) ~= ARGV[1] then return {3} end

redis.call('UNLINK', evicted_key)
return {0}
