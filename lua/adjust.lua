-- adjust.lua brings a changed definition to a campaign that Redis holds. What was claimed stays claimed.
--
-- KEYS[1] state  hash  definition and counters of the campaign
--
-- ARGV[1]   version  of the definition; one that is not newer than what is here changes nothing
-- ARGV[2..] pairs of a field of state and its value
--
-- Reply {0} adjusted · {1} absent: the campaign is not here · {2, which} damaged: the key of that number
--   {3} it is there already, or something newer is
local state_key, version = KEYS[1], tonumber(ARGV[1])

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local held = tonumber(redis.call('HGET', state_key, 'version'))
if not held then return {2, 1} end
if version <= held then return {3} end

redis.call('HSET', state_key, 'version', ARGV[1], unpack(ARGV, 2))
return {0}
