-- The article's script: three limits read, compared and counted, one claim a
-- call.
--
-- KEYS[1] coupon  hash  total, per_user, per_user_per_day, in units
-- KEYS[2] count   hash  taken
-- KEYS[3] users   hash  user id -> units
-- KEYS[4] days    hash  user id -> units today
-- ARGV[1] user id
-- Reply 0 claimed, 1 sold out, 2 user limit, 3 day limit
local coupon, user = KEYS[1], ARGV[1]
local total = tonumber(redis.call('HGET', coupon, 'total'))
local per_user = tonumber(redis.call('HGET', coupon, 'per_user'))
local per_day = tonumber(redis.call('HGET', coupon, 'per_user_per_day'))
local taken = tonumber(redis.call('HGET', KEYS[2], 'taken') or '0')
if taken >= total then return 1 end
local mine = tonumber(redis.call('HGET', KEYS[3], user) or '0')
if mine >= per_user then return 2 end
local today = tonumber(redis.call('HGET', KEYS[4], user) or '0')
if today >= per_day then return 3 end
redis.call('HINCRBY', KEYS[2], 'taken', 1)
redis.call('HINCRBY', KEYS[3], user, 1)
redis.call('HINCRBY', KEYS[4], user, 1)
return 0
