-- load.lua writes a campaign that Redis does not hold: whole or not at all.
--
-- KEYS[1] state  hash  definition and counters of the campaign
-- KEYS[2] users  hash  must not be there
-- KEYS[3] keys   hash  must not be there
--
-- ARGV    pairs of a field of state and its value
--
-- Reply {0} loaded · {1} it is there already, untouched · {2, which} damaged: the key of that number
local state_key, users_key, keys_key = KEYS[1], KEYS[2], KEYS[3]

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'hash' then return {1} end
if state_type ~= 'none' then return {2, 1} end
-- Counts without a state are what is left of a loss: a load over them would forget what users hold.
if redis.call('TYPE', users_key)['ok'] ~= 'none' then return {2, 2} end
if redis.call('TYPE', keys_key)['ok'] ~= 'none' then return {2, 3} end

redis.call('HSET', state_key, unpack(ARGV))
return {0}
