-- credit.lua brings a lot the units that a peer, a lot of the same campaign, has debited for it, in one step. It says how many the lot was
-- ever credited from the peer, so it may be sent any number of times, in any order. The lot counts them in in:<peer>.
--
-- A load of the peer tells the lot its number by a credit of no units; the lot remembers it in load:<peer>, and takes no credit of an
-- earlier load any more. So does a lot that is being loaded, or is fenced. The first write is an XADD or an HSET, either of which Redis refuses whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the lot
-- KEYS[2] stream  stream  the claim stream of the partition
-- KEYS[3] waves   zset    of a packet campaign only, see push.lua
--
-- ARGV[1] epoch     the load that the caller saw
-- ARGV[2] seq       claims of that load that the caller saw accepted
-- ARGV[3] tseq      debits and credits of that load that the caller saw
-- ARGV[4] peer      the number of the lot that the units come from
-- ARGV[5] load      the load of the peer that debited them
-- ARGV[6] before    of packets: credited units before the first packet below
-- ARGV[7] upto      units that the peer ever debited for this lot
-- ARGV[8] event_id  of the event
-- ARGV[9] at        when, as JSON shows it
-- ARGV[10..]        of packets: "release_ms:amount:id" of each, from before to upto
--
-- Reply {0, in:<peer>, units that were credited}
--   {1} absent: the lot is not here
--   {2, which} damaged: the key of that number; nothing was changed
--   {3, in:<peer>} packets are missing in the call, untouched
--   {4} another load is here, or one that is not to be trusted; untouched
--   {5, load} a later load of the peer is known; untouched
--   {6, seq, tseq} rolled back: Redis was rolled back behind what the caller saw; the lot is fenced
local state_key, stream_key, waves_key = KEYS[1], KEYS[2], KEYS[3]
local peer, load, before, upto, FIRST_PACKET = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), 10

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, stream_type = type_of(state_key), type_of(stream_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 2} end
local held = redis.call('HMGET', state_key, 'epoch', 'total', 'seq', 'tseq', 'ups', 'owed', 'in:' .. peer, 'load:' .. peer)
for i = 1, 8 do
  if i > 5 and not held[i] then held[i] = '0' end
  if not held[i] or not string.find(held[i], '^%d+$') or #held[i] > 15 then return {2, 1} end
  held[i] = tonumber(held[i])
end
local kind, status = unpack(redis.call('HMGET', state_key, 'kind', 'status'))
if (kind == 'packet') ~= (waves_key ~= nil) then return {2, 1} end
if held[1] ~= tonumber(ARGV[1]) then return {4} end
local is_open = status ~= 'fenced' and status ~= 'loading'
if is_open and (held[3] < tonumber(ARGV[2]) or held[4] < tonumber(ARGV[3])) then
  redis.call('HSET', state_key, 'status', 'fenced')
  return {6, held[3], held[4]}
end
if load < held[8] then return {5, held[8]} end
local credited = held[7]
if upto <= credited then
  if load > held[8] then redis.call('HSET', state_key, 'load:' .. peer, load) end
  return {0, credited, 0}
end
if not is_open then return {4} end

local units, packets, ids = upto - credited, {}, {}
if waves_key then
  local waves_type = type_of(waves_key)
  if waves_type ~= 'zset' and waves_type ~= 'none' then return {2, 3} end
  if credited < before or #ARGV - FIRST_PACKET + 1 ~= upto - before then return {3, credited} end
  for i = FIRST_PACKET + credited - before, #ARGV do
    local release_ms, packet, id = string.match(ARGV[i], '^(%d+):(%d+:(.+))$')
    local list = state_key .. ':packets:' .. ARGV[1] .. ':' .. release_ms
    local list_type = type_of(list)
    if list_type ~= 'list' and list_type ~= 'none' then return {2, 3} end
    packets[#packets + 1] = {list, release_ms, packet}
    ids[#packets] = '"' .. id .. '"'
  end
end

-- Writes. The first may be refused, and then nothing was written. After it nothing can fail.
local tseq, paid = held[4] + 1, math.min(units, held[6])
local campaign_id, number = string.match(state_key, ':c:([^#]*)#(%d+)$')
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[8], 'metadata', '', 'payload', '{"v":1,"type":"units.credited","id":"' ..
  ARGV[8] .. '","campaign_id":"' .. campaign_id .. '","shard":' .. number .. ',"peer":' .. peer .. ',"quantity":' ..
  string.format('%.0f', units) .. ',"cumulative":' .. ARGV[7] .. ',"tseq":' .. string.format('%.0f', tseq) .. ',"epoch":' .. ARGV[1] ..
  (ids[1] and ',"ids":[' .. table.concat(ids, ',') .. ']' or '') .. ',"at":"' .. ARGV[9] .. '"}')
redis.call('HSET', state_key, 'total', held[2] + units - paid, 'owed', held[6] - paid, 'tseq', tseq, 'ups', held[5] + 1,
  'in:' .. peer, ARGV[7], 'load:' .. peer, load)
for _, packet in ipairs(packets) do
  local list = packet[1]
  redis.call('RPUSH', list, packet[3])
  redis.call('ZADD', waves_key, packet[2], list)
end
return {0, upto, units}
