-- red_packet.lua takes one packet from the list for a user
-- without one, and records the user.
--
-- KEYS[1] packets  list  packets left, JSON
-- KEYS[2] users    hash  user id -> packet
-- KEYS[3] taken    list  user id and packet, for accounting
-- ARGV[1] user id
-- Reply {claimed, packet} · {sold_out, ''} · {over_limit, the user's packet}
local packets_key, users_key, taken_key = KEYS[1], KEYS[2], KEYS[3]
local user = ARGV[1]
local had = redis.call('HGET', users_key, user)
if had then return {'over_limit', had} end
local packet = redis.call('LPOP', packets_key)
if not packet then return {'sold_out', ''} end
redis.call('HSET', users_key, user, packet)
redis.call('LPUSH', taken_key, user .. ' ' .. packet)
return {'claimed', packet}
