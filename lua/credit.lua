-- credit.lua adds the units of a move to a shard, in one step. A load counts a
-- move once, however often the script is called. The first write is an XADD,
-- which Redis refuses whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the shard
-- KEYS[2] stream  stream  the claim stream of the partition
-- KEYS[3] moves   zset    the last 10,000 moves credited to this load, in
--                         order; the state has their number
-- KEYS[4] signals hash    of the partition, see away.lua
--
-- ARGV[1] epoch  of the load, by MySQL
-- ARGV[2] from   the shard that gives the units; 0: a raise of the total
-- ARGV[3] units
-- ARGV[4] move   the id of the move
-- ARGV[5] at     the time in JSON
--
-- Reply {0, units; 0: credited before}
--   {1} absent: the shard is missing or away
--   {2, which} damaged: the key of that number; nothing was changed
--   {3} another load; untouched
local state_key, stream_key, moves_key, signals_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, units, move = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local KEPT = 10000 -- callers read seconds ago that MySQL lacks it; a clock may jump

-- include away.lua

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, stream_type, moves_type = type_of(state_key), type_of(stream_key), type_of(moves_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
if is_away(state_key, signals_key) then return {1} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 2} end
if moves_type ~= 'zset' and moves_type ~= 'none' then return {2, 3} end
local held = redis.call('HMGET', state_key, 'epoch', 'total', 'in', 'ups', 'moves')
held[5] = held[5] or '0'
for i = 1, 5 do
  if not held[i] or not string.find(held[i], '^%-?%d+$') or #held[i] > 15 then return {2, 1} end
  held[i] = tonumber(held[i])
end
local epoch, total, came, ups = held[1], held[2], held[3], held[4]
if epoch ~= tonumber(ARGV[1]) then return {3} end
-- deleted by hand: the credits are unknown
if redis.call('ZCARD', moves_key) ~= held[5] then return {2, 3} end
if redis.call('ZSCORE', moves_key, move) then return {0, 0} end
local newest = redis.call('ZREVRANGE', moves_key, 0, 0, 'WITHSCORES')[2] or 0
-- in order, and recent: an older program forgets credits by their time
local order = math.max(newest + 1, redis.call('TIME')[1] * 1000)

-- Writes. None after the first can fail.
local made_ms = redis.call('HGET', state_key, 'made_ms')
local campaign_id, number = string.match(state_key, ':c:([^#]*)#(%d+)$')
local id = move .. ':credited'
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', id, 'metadata', '', 'payload',
  '{"v":1,"type":"units.credited","id":"' .. id ..
  '","campaign_id":"' .. campaign_id .. '","shard":' .. number .. ',"peer":' .. from .. ',"move":"' .. move ..
  '","quantity":' .. ARGV[3] .. ',"epoch":' .. ARGV[1] ..
  (made_ms and ',"made_ms":' .. made_ms or '') .. ',"at":"' .. ARGV[5] .. '"}')
redis.call('ZADD', moves_key, order, move)
redis.call('ZREMRANGEBYRANK', moves_key, 0, -KEPT - 1)
redis.call('HSET', state_key, 'total', string.format('%.0f', total + units), 'ups', ups + 1,
  'moves', redis.call('ZCARD', moves_key))
if from ~= '0' then redis.call('HSET', state_key, 'in', string.format('%.0f', came + units)) end
return {0, units}
