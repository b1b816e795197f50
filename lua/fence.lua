-- fence.lua stops the claims of a campaign, because what Redis holds of it is not to be trusted.
--
-- KEYS[1] state  hash  definition and counters of the campaign
--
-- ARGV[1] epoch  the load that is not to be trusted, as all before it; a state without a readable epoch is fenced, too
--
-- Reply {0} it takes no claims · {1} absent: the campaign is not here · {2, which} damaged: the key of that number
--   {3} a newer load is here, untouched
local state_key, epoch = KEYS[1], tonumber(ARGV[1])

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local held = redis.call('HMGET', state_key, 'status', 'epoch')
local held_epoch = tonumber(held[2] or '')
if held_epoch and held_epoch > epoch then return {3} end
if held[1] == 'fenced' then return {0} end

redis.call('HSET', state_key, 'status', 'fenced')
return {0}
