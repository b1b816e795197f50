-- adjust.lua brings a changed definition to a campaign that Redis holds. What was claimed stays claimed.
--
-- KEYS[1] state  hash  definition and counters of the campaign
--
-- ARGV[1]    version  of the definition; one that is not newer than what is here changes nothing
-- ARGV[2]    epoch    the load that MySQL knows
-- ARGV[3..10] pairs of a field of state that never changes and its value; another one held here is damage
-- ARGV[11..] pairs of a field of state and its new value
--
-- Reply {0} adjusted · {1} absent: the campaign is not here · {2, which} damaged: the key of that number
--   {3} it is there already, or something newer is · {4} another load is here, or one that is not to be trusted; untouched
local state_key, version = KEYS[1], tonumber(ARGV[1])

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local counts = redis.call('HMGET', state_key, 'version', 'epoch', 'taken', 'seq', 'status')
for i = 1, 4 do
  if not counts[i] or not string.find(counts[i], '^%d+$') or #counts[i] > 15 then return {2, 1} end
end
local held = redis.call('HMGET', state_key, ARGV[3], ARGV[5], ARGV[7], ARGV[9])
for i = 1, 4 do
  if held[i] ~= ARGV[2 + 2 * i] then return {2, 1} end
end
if tonumber(counts[2]) ~= tonumber(ARGV[2]) or counts[5] == 'fenced' then return {4} end
if version <= tonumber(counts[1]) then return {3} end

redis.call('HSET', state_key, 'version', ARGV[1], unpack(ARGV, 11))
return {0}
