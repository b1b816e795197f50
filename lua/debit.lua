-- debit.lua takes free units out of a shard, in one step. They leave the
-- campaign's total, or go to another shard: credit.lua adds them there after
-- MySQL has applied the event. The first write is an XADD, which Redis refuses
-- whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the shard
-- KEYS[2] stream  stream  the claim stream of the partition
-- KEYS[3] signals hash    of the partition, see away.lua
--
-- ARGV[1] epoch  of the load that the caller saw
-- ARGV[2] to     the shard that gets the units; 0: they leave the total
-- ARGV[3] units  wanted
-- ARGV[4] taken  1: claimed units too; the shard then refuses claims until as
--                many are returned
-- ARGV[5] move   the id of the move, and of its event
-- ARGV[6] at     the time in JSON
--
-- Reply {0, units}
--   {1} absent: the shard is missing or away
--   {2, which} damaged: the key of that number; nothing was changed
--   {3} another load; untouched
local state_key, stream_key, signals_key = KEYS[1], KEYS[2], KEYS[3]
local to, want, move = ARGV[2], tonumber(ARGV[3]), ARGV[5]

-- include away.lua

local state_type = redis.call('TYPE', state_key)['ok']
local stream_type = redis.call('TYPE', stream_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
if is_away(state_key, signals_key) then return {1} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 2} end
local held = redis.call('HMGET', state_key, 'epoch', 'total', 'taken', 'out')
for i = 1, 4 do
  if not held[i] or not string.find(held[i], '^%-?%d+$') or #held[i] > 15 then return {2, 1} end
  held[i] = tonumber(held[i])
end
local epoch, total, taken, out = held[1], held[2], held[3], held[4]
if epoch ~= tonumber(ARGV[1]) then return {3} end

local free = total
if ARGV[4] ~= '1' then free = math.max(0, total - taken) end
local units = math.min(want, free)
if units <= 0 then return {0, 0} end

-- Writes. None after the first can fail.
local made_ms = redis.call('HGET', state_key, 'made_ms')
local campaign_id, number = string.match(state_key, ':c:([^#]*)#(%d+)$')
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', move, 'metadata', '', 'payload',
  '{"v":1,"type":"units.debited","id":"' .. move ..
  '","campaign_id":"' .. campaign_id .. '","shard":' .. number .. ',"peer":' .. to .. ',"move":"' .. move ..
  '","quantity":' .. string.format('%.0f', units) .. ',"epoch":' .. ARGV[1] ..
  (made_ms and ',"made_ms":' .. made_ms or '') .. ',"at":"' .. ARGV[6] .. '"}')
redis.call('HSET', state_key, 'total', string.format('%.0f', total - units))
if to ~= '0' then redis.call('HSET', state_key, 'out', string.format('%.0f', out + units)) end
return {0, units}
