-- What a job asks for; nil if it does not ask for mps.
local function asked(job)
	return packhorse.asked(job.gres, job.tres_per_node, job.tres_per_task, job.tres_per_job,
		job.tres_per_socket)
end

local function known(value)
	return value ~= nil and value ~= "" and value or nil
end

-- What a change says; and how it was where it says nothing. To take something away is a change
-- as well: its value is empty.
local function changed(new, old)
	if new == nil then
		return known(old)
	end
	return known(new)
end

-- A filter of your own can call this, and refuse what it refuses. Of a change to a job, job_desc
-- is only what changes, and before is the job as it is, which Slurm describes in other words.
function packhorse.check(job_desc, before)
	before = before or {}
	local changes = job_desc.reservation ~= nil or job_desc.account ~= nil or job_desc.partition ~= nil
	local amount = asked(job_desc) or (changes and packhorse.asked(before.tres_per_node, before.gres_req))
	if not amount then
		return slurm.SUCCESS
	end
	local job = {
		user = changed(job_desc.user_name, before.user_name),
		account = changed(job_desc.account, before.account),
		partition = changed(job_desc.partition, before.partition),
		reservation = changed(job_desc.reservation, before.resv_name),
	}
	job.knows_user = job.user ~= nil
	job.knows_account = job.account ~= nil
	job.knows_partition = job.partition ~= nil
	local refusal = packhorse.refusal(amount, job)
	if refusal ~= nil then
		slurm.log_user("%s", refusal)
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	return packhorse.check(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return packhorse.check(job_desc, job_rec)
end

return slurm.SUCCESS
