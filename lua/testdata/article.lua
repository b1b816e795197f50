-- article.lua is the claim script of an article of 2019 on a coupon rush, plainly: three limits read with HGET, counted with
-- HINCRBY. It is here to be measured against.
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

