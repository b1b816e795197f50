-- lua_update.lua takes one unit for a user.
--
-- KEYS[1] stock  string  units left
-- KEYS[2] users  hash    user id -> units had
-- ARGV[1] user id · ARGV[2] units a user may have, 0 is no limit
-- Reply 1 claimed · 2 sold out · 3 over the limit
local stock_key, users_key = KEYS[1], KEYS[2]
local user, per_user = ARGV[1], tonumber(ARGV[2])
if tonumber(redis.call('GET', stock_key)) < 1 then return 2 end
if per_user > 0 and tonumber(redis.call('HGET', users_key, user) or 0) >= per_user then return 3 end
redis.call('DECR', stock_key)
redis.call('HINCRBY', users_key, user, 1)
return 1
