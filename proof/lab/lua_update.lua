-- lua_update.lua takes one unit for a user.
--
-- KEYS[1] stock  string  units left
-- KEYS[2] users  hash    user id -> units had
-- ARGV[1] user id
-- Reply claimed · sold_out · over_limit
local stock_key, users_key = KEYS[1], KEYS[2]
local user = ARGV[1]
if tonumber(redis.call('GET', stock_key)) < 1 then return 'sold_out' end
if redis.call('HEXISTS', users_key, user) == 1 then return 'over_limit' end
redis.call('DECR', stock_key)
redis.call('HSET', users_key, user, 1)
return 'claimed'
