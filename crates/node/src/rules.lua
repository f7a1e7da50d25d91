-- Made by `packhorse node install`. Who may ask for mps is written in the configuration,
-- not here: a change there needs no change of this file.
packhorse = { config = "@CONFIG@" }

-- A name with * and ? as a pattern of Lua.
function packhorse.matches(pattern, name)
	local lua = pattern:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".")
	return name:match("^" .. lua .. "$") ~= nil
end

-- The sections [[allow]] of the configuration; or nil and what is wrong.
function packhorse.rules()
	local file, problem = io.open(packhorse.config, "r")
	if file == nil then
		return nil, problem
	end
	local rules, rule, open, key = {}, nil, false, nil
	for line in file:lines() do
		-- Nothing that is in quotes has a number sign in it.
		line = line:gsub("#.*$", "")
		local section = line:match("^%s*(%[+[^%]]*%]+)%s*$")
		if open then
			for name in line:gmatch("[\"']([^\"']*)[\"']") do
				table.insert(rule[key], name)
			end
			open = not line:find("%]")
		elseif section ~= nil and not section:find("[\"']") and section:match("^%[%[?%s*[%w_.]+%s*%]%]?$") then
			rule = nil
			if section:match("^%[%[%s*allow%s*%]%]$") then
				rule = {}
				table.insert(rules, rule)
			end
		elseif line:match("^%s*allow[%s.=]") then
			file:close()
			return nil, "write the rules as sections [[allow]]"
		elseif rule ~= nil then
			local name, list = line:match("^%s*(%w+)%s*=%s*%[(.*)$")
			if name ~= nil then
				rule[name], key = {}, name
				for item in list:gmatch("[\"']([^\"']*)[\"']") do
					table.insert(rule[name], item)
				end
				open = not list:find("%]")
			else
				local amount, number = line:match("^%s*(%w+)%s*=%s*([%d_]+)%s*$")
				if amount ~= nil then
					rule[amount] = tonumber((number:gsub("_", "")))
				end
			end
		end
	end
	file:close()
	return rules
end

-- Whether a list is empty, or has a pattern of this name.
function packhorse.fits(patterns, name)
	if patterns == nil or #patterns == 0 then
		return true
	end
	for _, pattern in ipairs(patterns) do
		if name ~= nil and packhorse.matches(pattern, name) then
			return true
		end
	end
	return false
end

-- The mps in texts such as "gpu:1,mps:64" or "gres/mps:titanrtx:64"; nil if there is none.
function packhorse.asked(...)
	local most = nil
	for index = 1, select("#", ...) do
		local text = select(index, ...)
		if type(text) == "string" then
			for part in text:gmatch("[^,]+") do
				part = part:gsub("^%s*gres[/:]", ""):gsub("%s+$", "")
				local rest = part:match("^mps(.*)$")
				if rest ~= nil and (rest == "" or rest:match("^[:=]")) then
					local number, unit = rest:match("[:=](%d+)([kKmM]?)$")
					local amount = tonumber(number) or 1
					if unit == "k" or unit == "K" then
						amount = amount * 1024
					elseif unit == "m" or unit == "M" then
						amount = amount * 1048576
					end
					most = math.max(most or 0, amount)
				end
			end
		end
	end
	return most
end

-- Why a job may not have so much; nil if it may. What is not known of the job (known = false)
-- is left to the node.
function packhorse.refusal(amount, job)
	local rules, problem = packhorse.rules()
	if rules == nil then
		return "packhorse: mps is not available: cannot read its rules: " .. tostring(problem)
	end
	local most = nil
	for _, rule in ipairs(rules) do
		local fits = packhorse.fits(rule.reservations, job.reservation)
		fits = fits and (not job.knows_user or packhorse.fits(rule.users, job.user))
		fits = fits and (not job.knows_account or packhorse.fits(rule.accounts, job.account))
		fits = fits and (not job.knows_partition or packhorse.fits(rule.partitions, job.partition))
		if fits and (rule.most == nil or amount <= rule.most) then
			return nil
		elseif fits then
			most = math.max(most or 0, rule.most)
		end
	end
	if #rules == 0 then
		return nil
	elseif most ~= nil then
		return string.format("packhorse: mps:%d is too much: at most mps:%d is allowed here", amount, most)
	end
	return string.format("packhorse: mps is not allowed for user %s, account %s, partition %s, reservation %s",
		tostring(job.user or "none"), tostring(job.account or "none"),
		tostring(job.partition or "none"), tostring(job.reservation or "none"))
end
