-- debit.lua takes free units out of a shard of a campaign, in one step. They are for another shard, which credit.lua brings them to once
-- MySQL has applied the event; or they leave the total of the campaign.
--
-- The first write is an XADD, which Redis refuses whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the shard
-- KEYS[2] stream  stream  the claim stream of the partition
-- KEYS[3] signals hash  of the partition, see away.lua
--
-- ARGV[1] epoch  the load that the caller saw
-- ARGV[2] to     the number of the shard that the units are for; 0: they leave the total
-- ARGV[3] units  that are wanted
-- ARGV[4] taken  1: units that users have go, too, and the shard refuses claims until as many came back
-- ARGV[5] move   the id of the move, and of its event
-- ARGV[6] at     when, as JSON shows it
--
-- Reply {0, units that were debited}
--   {1} absent: the shard is not here, or away · {2, which} damaged: the key of that number; nothing was changed
--   {3} another load is here; untouched
local state_key, stream_key, signals_key = KEYS[1], KEYS[2], KEYS[3]
local to, want, move = ARGV[2], tonumber(ARGV[3]), ARGV[5]

-- include away.lua

local state_type, stream_type = redis.call('TYPE', state_key)['ok'], redis.call('TYPE', stream_key)['ok']
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

-- Writes. The first may be refused, and then nothing was written. After it nothing can fail.
local campaign_id, number = string.match(state_key, ':c:([^#]*)#(%d+)$')
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', move, 'metadata', '', 'payload', '{"v":1,"type":"units.debited","id":"' .. move ..
  '","campaign_id":"' .. campaign_id .. '","shard":' .. number .. ',"peer":' .. to .. ',"move":"' .. move ..
  '","quantity":' .. string.format('%.0f', units) .. ',"epoch":' .. ARGV[1] .. ',"at":"' .. ARGV[6] .. '"}')
redis.call('HSET', state_key, 'total', string.format('%.0f', total - units))
if to ~= '0' then redis.call('HSET', state_key, 'out', string.format('%.0f', out + units)) end
return {0, units}
