-- The records of users, as claim.lua and release.lua read and write them.
local DIGITS = 15 -- Lua holds numbers of up to 15 digits exactly

-- read_limits reads a campaign's limits: a list of those of the user, and the others by the name of their subject and as a list. The
-- user's first two are always counted; each of the others is "tag:units:from_ms:subject", joined by ";". The tag is the first letter of
-- all, hour, day, week or month, and the number of the definition that added the limit. Claims before from_ms do not count. It returns
-- nil if the text is damaged.
local function read_limits(per_user, per_user_per_day, text)
  local of_user = {{tag = 'a', most = per_user, from = 0}, {tag = 'd', most = per_user_per_day, from = 0}}
  local others, n, joined = {}, 0, {}
  if not text or text == '' then return of_user, others end
  for tag, most, from, by in string.gmatch(text, '(%l%d+):(%d+):(%d+):([%l_]+)') do
    if #most > DIGITS or #from > DIGITS then return nil end
    n = n + 1
    joined[n] = tag .. ':' .. most .. ':' .. from .. ':' .. by
    local group = of_user
    if by ~= 'user' then
      if not others[by] then
        others[by] = {name = by}
        others[#others + 1] = others[by]
      end
      group = others[by]
    end
    group[#group + 1] = {tag = tag, most = tonumber(most), from = tonumber(from), number = n}
  end
  if table.concat(joined, ';') ~= text then return nil end
  return of_user, others
end

-- read_record reads the record of what a subject holds: the newest window of each limit, and the units in it. A user's begins with
-- "0:units;day:units", what the user holds in all and on the last day. For each other limit follows ";tag.window:units". It returns
-- the windows and the units as numbers by tag, or nil if the record is damaged.
local function read_record(record, is_user)
  local windows, counts, rest, joined = {}, {}, record, ''
  if is_user then
    local all, day, today
    all, day, today, rest = string.match(record, '^0:(%d+);(%d+):(%d+)(.*)$')
    if not all or #all > DIGITS or #day > DIGITS or #today > DIGITS then return nil end
    windows.a, counts.a, windows.d, counts.d = 0, tonumber(all), tonumber(day), tonumber(today)
  end
  if rest == '' then return windows, counts end
  for tag, window, units in string.gmatch(rest, ';(%l%d+)%.(%d+):(%d+)') do
    if #window > DIGITS or #units > DIGITS then return nil end
    windows[tag], counts[tag] = tonumber(window), tonumber(units)
    joined = joined .. ';' .. tag .. '.' .. window .. ':' .. units
  end
  if joined ~= rest then return nil end
  return windows, counts
end

-- write_record writes what read_record reads. Limits that were removed are left out.
local function write_record(limits, windows, counts, is_user)
  local record, first = '', 1
  if is_user then record, first = '0:' .. counts.a .. ';' .. windows.d .. ':' .. counts.d, 3 end
  for i = first, #limits do
    local tag = limits[i].tag
    if windows[tag] then record = record .. ';' .. tag .. '.' .. windows[tag] .. ':' .. counts[tag] end
  end
  return record
end
