-- push.lua adds a campaign's next packets, by position. The first write is an
-- HSET, which Redis refuses whole when it is out of memory, a replica or unable
-- to persist.
--
-- KEYS[1] state  hash  definition and counters of the campaign;
--                      pushed is its last position
-- KEYS[2] waves  zset  list -> time of release in milliseconds since 1970;
--                      0 is at once
-- KEYS[3] list   list  "amount:id" of packets of one time of release, in order
-- KEYS[4] signals hash of the partition, see away.lua
--
-- ARGV[1] epoch       of the load that the caller saw
-- ARGV[2] after       the value of pushed that the caller expects
-- ARGV[3] upto        the value of pushed after this call
-- ARGV[4] units       packets between the two without an owner
-- ARGV[5] release_ms  the time of release
-- ARGV[6..] amount:id of each packet
--
-- Reply {0, upto} pushed
--   {1} absent: the campaign is missing, away, or of another load
--   {2, which} damaged: the key of that number
--   {3, pushed} pushed is another than after, untouched
local state_key, waves_key, list_key, signals_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_PACKET = 6

-- include away.lua

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, waves_type, list_type = type_of(state_key), type_of(waves_key), type_of(list_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
if is_away(state_key, signals_key) then return {1} end
if waves_type ~= 'zset' and waves_type ~= 'none' then return {2, 2} end
if list_type ~= 'list' and list_type ~= 'none' then return {2, 3} end
local held = redis.call('HMGET', state_key, 'epoch', 'pushed', 'total', 'kind')
for i = 1, 3 do
  if not held[i] or not string.find(held[i], '^%d+$') or #held[i] > 15 then return {2, 1} end
end
if held[4] ~= 'packet' then return {2, 1} end
if tonumber(held[1]) ~= tonumber(ARGV[1]) then return {1} end
local pushed, upto = tonumber(held[2]), tonumber(ARGV[3])
if pushed ~= tonumber(ARGV[2]) then return {3, pushed} end

redis.call('HSET', state_key, 'pushed', upto, 'total', tonumber(held[3]) + tonumber(ARGV[4]))
if #ARGV >= FIRST_PACKET then
  redis.call('RPUSH', list_key, unpack(ARGV, FIRST_PACKET))
  redis.call('ZADD', waves_key, ARGV[5], list_key)
end
return {0, upto}
