-- A filter of your own can call this, and refuse what it refuses.
function packhorse.check(job_desc)
	local amount = packhorse.asked(job_desc.gres, job_desc.tres_per_node, job_desc.tres_per_task,
		job_desc.tres_per_job, job_desc.tres_per_socket)
	if amount == nil then
		return slurm.SUCCESS
	end
	local known = function(value)
		return value ~= nil and value ~= "" and value or nil
	end
	local job = {
		user = known(job_desc.user_name),
		account = known(job_desc.account),
		partition = known(job_desc.partition),
		reservation = known(job_desc.reservation),
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
	return packhorse.check(job_desc)
end

return slurm.SUCCESS
